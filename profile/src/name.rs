//! The file name of a profile.

use std::ffi::OsStr;
use std::path::Path;

/// `PROGRAM.PID.radrm`, from the program as it was called. Characters that do
/// not belong into a file name become `_`; very long names are cut.
pub fn file_name(program: &OsStr, pid: u32) -> String {
    let base = Path::new(program).file_name().unwrap_or(OsStr::new("program")).to_string_lossy();
    let mut name: String = base
        .chars()
        .map(|c| if c.is_control() || c == '/' || c == char::REPLACEMENT_CHARACTER { '_' } else { c })
        .collect();
    // 255 bytes is the common limit; the process id and the ending need room.
    let mut end = name.len().min(200);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    if name.starts_with('.') || name.is_empty() {
        name.insert(0, '_');
    }
    format!("{name}.{pid}.radrm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_a_file_name() {
        for (program, name) in [
            ("python", "python.7.radrm"),
            ("/usr/bin/python3.11", "python3.11.7.radrm"),
            ("./a.out", "a.out.7.radrm"),
            ("..", "program.7.radrm"),
            ("x\ny", "x_y.7.radrm"),
            (".hidden", "_.hidden.7.radrm"),
        ] {
            assert_eq!(file_name(OsStr::new(program), 7), name);
        }
        assert!(file_name(OsStr::new(&"é".repeat(500)), 7).len() < 255);
    }
}
