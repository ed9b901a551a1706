//! Notes that a dry run collects.

use std::io::Write;

/// Appends a line to the notes of a dry run, if there is one: kind, process, the count 1, and words.
pub(crate) fn note(kind: &str, words: &str) {
    let Some(path) = std::env::var_os("RADRM_DRY_RUN_NOTES").filter(|path| !path.is_empty()) else { return };
    if let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(path) {
        // A note that cannot be written must not harm the program.
        let _ = file.write_all(format!("{kind}\t{}\t1\t{words}\n", std::process::id()).as_bytes());
    }
}
