//! Checks of single values of a file.

use toml::Spanned;

use crate::error::Wrong;
use crate::expand::MAX_RUNS;

/// Offset of an error, bytes, and the error.
pub(super) type At = (usize, Wrong);

/// A name that is part of a file's name.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

pub(super) fn check_count(runs: u64, at: usize) -> Result<(), At> {
    if runs > MAX_RUNS { Err((at, Wrong::TooMany(MAX_RUNS))) } else { Ok(()) }
}

pub(super) fn count(stated: Option<&Spanned<u32>>) -> Result<u32, At> {
    match stated {
        Some(count) if *count.get_ref() == 0 => Err((count.span().start, Wrong::Zero)),
        Some(count) => {
            check_count((*count.get_ref()).into(), count.span().start)?;
            Ok(*count.get_ref())
        }
        None => Ok(1),
    }
}
