//! A command line whose rest comes on standard input, so that a program that will need `radrm-run` can start it before
//! it knows everything: the process is there when it is asked for something.
//!
//! `radrm-run --later OPTION... ` reads the length of what follows as a line, then the directory to work in, the umask as an octal
//! number and the further words, each with a zero byte behind it. Where the input ends before that, there is nothing to do.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStringExt;

/// The first argument of such a command line.
const WORD: &str = "--later";
/// More than any command line has.
const MAX_LEN: usize = 16 << 20;

/// Completes a command line. `None`: what has started this process has gone without a word.
///
/// # Errors
/// What comes is not a command line, or its directory cannot be entered.
pub fn complete(mut arguments: Vec<OsString>) -> io::Result<Option<Vec<OsString>>> {
    if arguments.get(1).is_none_or(|word| word != WORD) {
        return Ok(Some(arguments));
    }
    arguments.remove(1);
    // What stands behind it on standard input is read by others, so nothing may be read ahead.
    // SAFETY: standard input, which this does not close.
    let mut input = ManuallyDrop::new(unsafe { File::from_raw_fd(0) });
    let Some(text) = read(&mut *input)? else { return Ok(None) };
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut words = text.strip_suffix(b"\0").ok_or_else(invalid)?.split(|byte| *byte == 0);
    let mut next = || words.next().map(|word| OsString::from_vec(word.to_vec())).ok_or_else(invalid);
    let (directory, umask) = (next()?, next()?);
    let umask = umask.to_str().and_then(|umask| u32::from_str_radix(umask, 8).ok()).ok_or_else(invalid)?;
    env::set_current_dir(&directory)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", directory.display())))?;
    // SAFETY: a plain system call that cannot fail.
    unsafe { libc::umask(umask & 0o777) };
    arguments.extend(words.map(|word| OsString::from_vec(word.to_vec())));
    Ok(Some(arguments))
}

/// Reads what was handed over.
fn read(input: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut length = 0_usize;
    let mut byte = [0];
    loop {
        match input.read(&mut byte) {
            Ok(0) => return Ok(None),
            Ok(_) if byte == *b"\n" => break,
            Ok(_) => {
                let digit = (byte[0] as char).to_digit(10).ok_or_else(invalid)?;
                length = length * 10 + digit as usize;
                if length > MAX_LEN {
                    return Err(invalid());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let mut text = vec![0; length];
    match input.read_exact(&mut text) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        other => other.map(|()| Some(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_announced_is_read() {
        let mut input = io::Cursor::new(b"5\na\0b\0c12 0\n".to_vec());
        assert_eq!(read(&mut input).unwrap().unwrap(), b"a\0b\0c");
        let mut rest = Vec::new();
        input.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"12 0\n");
        for text in ["", "7", "7\nabc"] {
            assert_eq!(read(&mut io::Cursor::new(text)).unwrap(), None, "{text}");
        }
        for text in ["x\n", "-1\n", "99999999999\n"] {
            assert!(read(&mut io::Cursor::new(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn an_ordinary_command_line_stays_as_it_is() {
        let words: Vec<OsString> = ["radrm-run", "--", "--later"].map(OsString::from).into();
        assert_eq!(complete(words.clone()).unwrap(), Some(words));
    }
}
