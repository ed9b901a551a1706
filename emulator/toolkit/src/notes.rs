//! Notes for the run on how far its figures can be trusted.
//!
//! Each note is a line of a file that `radrm-run` names in [`VARIABLE`]: `kind`, the process, and words,
//! separated by tabs. A line is written when its matter first comes up, with one `write` to a file that is
//! open for appending: processes that are killed leave their notes, and lines of several do not mix.

use core::ffi::{CStr, c_char, c_int};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

/// Names the file that notes go to; without it there are none.
pub const VARIABLE: &str = "RADRM_DRY_RUN_NOTES";

/// Subject of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A call without semantics: it failed as "not supported".
    Missing,
    /// A size that is neither documented nor measured: an upper bound was told.
    Guess,
    /// A size that depends on data: it was filled in.
    Fill,
    /// A call for which a library launches kernels of its own.
    Call,
    /// Something that a rank which does not run was asked for: it was modelled.
    Answered,
    /// A sentence for the user.
    Remark,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Guess => "guess",
            Self::Fill => "fill",
            Self::Call => "call",
            Self::Answered => "answered",
            Self::Remark => "remark",
        }
    }
}

type Counts = HashMap<(Kind, String), u64>;
static COUNTS: LazyLock<Mutex<Counts>> = LazyLock::new(Mutex::default);

fn file() -> Option<&'static File> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    FILE.get_or_init(|| {
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
        OpenOptions::new().append(true).open(path).ok()
    })
    .as_ref()
}

/// Notes that a size was told that is neither documented nor measured, whenever it is the largest so far of
/// its kind: the line's number is that size in bytes.
pub fn guess(what: &str, bytes: u64) {
    if bytes == 0 {
        return;
    }
    {
        let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
        let largest = counts.entry((Kind::Guess, what.to_owned())).or_default();
        if bytes <= *largest {
            return;
        }
        *largest = bytes;
    }
    write(Kind::Guess, bytes, what);
}

fn write(kind: Kind, number: u64, what: &str) {
    if let Some(mut file) = file() {
        // A note that cannot be written (a full disk) must not harm the program.
        let _ = file.write_all(line(kind, number, what).as_bytes());
    }
}

/// Counts a matter, and notes it the 1st, 10th, 100th... time.
pub fn note(kind: Kind, what: &str) {
    let count = {
        let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry((kind, what.to_owned())).or_default();
        *count += 1;
        *count
    };
    at_powers_of_ten(kind, count, what);
}

/// Notes a matter that came up for the 1st, 10th, 100th... time.
pub(crate) fn at_powers_of_ten(kind: Kind, count: u64, what: &str) {
    if 10_u64.checked_pow(count.checked_ilog10().unwrap_or(0)) == Some(count) {
        write(kind, count, what);
    }
}

fn line(kind: Kind, count: u64, what: &str) -> String {
    let what = what.replace(['\t', '\n'], " ");
    format!("{}\t{}\t{count}\t{what}\n", kind.word(), std::process::id())
}

/// Counts a call of an export without semantics: the stand-ins lead such exports here.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_toolkit_missing(name: *const c_char, status: c_int) -> c_int {
    crate::guarded(status, || {
        if !name.is_null() {
            // SAFETY: the stand-ins hand over names of their own, which end with NUL.
            note(Kind::Missing, &unsafe { CStr::from_ptr(name) }.to_string_lossy());
        }
        status
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_one_line_whatever_it_says() {
        let text = line(Kind::Missing, 10, "a\tb\nc");
        assert_eq!(text, format!("missing\t{}\t10\ta b c\n", std::process::id()));
    }
}
