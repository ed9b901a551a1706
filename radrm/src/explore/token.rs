//! The secret that tells the user of the page from all others on the machine.

use std::fmt::Write as _;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};

const BYTES: usize = 24;

/// A secret, made anew for each server.
pub(super) struct Token(String);

impl Token {
    /// # Errors
    /// The system has no random bytes.
    pub(super) fn new() -> io::Result<Self> {
        let mut bytes = [0; BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let mut text = String::with_capacity(2 * BYTES);
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Returns true if a text is the token. The time that it takes depends on the length of the text only.
    pub(super) fn is(&self, text: &str) -> bool {
        let (own, other) = (self.0.as_bytes(), text.as_bytes());
        if own.len() != other.len() {
            return false;
        }
        let difference = own.iter().zip(other).fold(0, |sum, (a, b)| black_box(sum | (a ^ b)));
        difference == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_itself_and_nothing_else() {
        let token = Token::new().unwrap();
        let own = token.text().to_owned();
        assert_eq!(own.len(), 48);
        assert!(token.is(&own));
        let mut other = own.clone().into_bytes();
        other[47] ^= 1;
        for wrong in ["", &own[1..], &format!("{own}0"), &String::from_utf8(other).unwrap()] {
            assert!(!token.is(wrong), "{wrong}");
        }
        assert!(!Token::new().unwrap().is(&own), "each server has its own");
    }
}
