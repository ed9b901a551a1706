//! Keys that are for the connection and not for the program: those of ssh, at the start of a line.

/// Wish of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// `~.`: hang up, which ends the session.
    HangUp,
    /// `~d`: leave the program running.
    Detach,
    /// `~?`: the list of keys.
    Help,
}

/// The list of keys.
pub(super) const HELP: &str =
    "\r\n~.  hang up: the session ends\r\n~d  leave it running; `radrm attach` comes back\r\n~~  a tilde\r\n";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    LineStart,
    Tilde,
    Within,
}

/// Reads what is typed.
#[derive(Debug, Default)]
pub(super) struct Keys {
    at: At,
}

impl Keys {
    /// The part of what was typed that is for the program, up to the first wish; what is typed behind that is dropped
    /// unless the wish is for help.
    pub(super) fn read(&mut self, typed: &[u8]) -> (Vec<u8>, Option<Wish>) {
        let mut program = Vec::with_capacity(typed.len());
        let mut wish = None;
        for byte in typed {
            match (self.at, byte) {
                (At::LineStart, b'~') => {
                    self.at = At::Tilde;
                    continue;
                }
                (At::Tilde, b'.') => return (program, Some(Wish::HangUp)),
                (At::Tilde, b'd') => return (program, Some(Wish::Detach)),
                (At::Tilde, b'?') => {
                    self.at = At::LineStart;
                    wish = Some(Wish::Help);
                    continue;
                }
                (At::Tilde, b'~') => {}
                (At::Tilde, _) => program.push(b'~'),
                _ => {}
            }
            program.push(*byte);
            self.at = if matches!(byte, b'\r' | b'\n') { At::LineStart } else { At::Within };
        }
        (program, wish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_count_at_the_start_of_a_line_only() {
        let read = |typed: &[u8]| {
            let (program, wish) = Keys::default().read(typed);
            (String::from_utf8(program).unwrap(), wish)
        };
        assert_eq!(read(b"ls ~.\r"), ("ls ~.\r".to_owned(), None));
        assert_eq!(read(b"ls\r~.rest"), ("ls\r".to_owned(), Some(Wish::HangUp)));
        assert_eq!(read(b"~d"), (String::new(), Some(Wish::Detach)));
        assert_eq!(read(b"~~/bin\r"), ("~/bin\r".to_owned(), None));
        assert_eq!(read(b"~/bin\r"), ("~/bin\r".to_owned(), None), "a path of one's home");
        assert_eq!(read(b"~?ls\r"), ("ls\r".to_owned(), Some(Wish::Help)));
        let mut keys = Keys::default();
        assert_eq!(keys.read(b"~"), (Vec::new(), None), "held back until the next key");
        assert_eq!(keys.read(b"x"), (b"~x".to_vec(), None));
        assert_eq!(keys.read(b"~."), (b"~.".to_vec(), None));
    }
}
