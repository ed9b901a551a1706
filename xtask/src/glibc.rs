//! The shim loads into programs on machines with an older C library.

use std::path::Path;

use anyhow::Result;

use crate::shell;

/// The oldest glibc into whose programs the shim loads.
pub const FLOOR: (u32, u32) = (2, 34);

/// Finds symbols of a newer glibc than the floor.
pub fn check(library: &Path) -> Result<Vec<String>> {
    let table = shell::read(shell::command("objdump").arg("-T").arg(library))?;
    Ok(above_floor(&table)
        .into_iter()
        .map(|(symbol, (major, minor))| {
            format!(
                "{}: {symbol} needs glibc {major}.{minor}, and the floor is {}.{}",
                library.display(),
                FLOOR.0,
                FLOOR.1
            )
        })
        .collect())
}

/// The newest glibc that a file needs; `None` if it needs none.
pub fn needed(file: &Path) -> Result<Option<(u32, u32)>> {
    let table = shell::read(shell::command("objdump").arg("-T").arg(file))?;
    Ok(versions(&table).map(|(_, version)| version).max())
}

/// Libraries that the loader loads for a file.
///
/// # Errors
/// The file cannot be read.
pub fn libraries(file: &Path) -> Result<Vec<String>> {
    let headers = shell::read(shell::command("objdump").arg("-p").arg(file))?;
    let names = headers.lines().filter_map(|line| line.trim().strip_prefix("NEEDED"));
    Ok(names.map(|name| name.trim().to_owned()).collect())
}

/// Symbols that a file must have and that no version of glibc it was linked for has: no program starts with it on a machine
/// with that version.
///
/// # Errors
/// The file cannot be read.
pub fn absent(file: &Path) -> Result<Vec<String>> {
    Ok(unversioned(&shell::read(shell::command("objdump").arg("-T").arg(file))?))
}

/// Symbols without a version that are not weak. All those of glibc and libgcc have one.
fn unversioned(table: &str) -> Vec<String> {
    let needed = table.lines().filter_map(|line| line.split_once("*UND*"));
    needed
        .filter(|(flags, rest)| !flags.contains(" w ") && !rest.contains('('))
        .filter_map(|(_, rest)| rest.split_whitespace().nth(1).map(str::to_owned))
        .collect()
}

/// Symbols with a version above the floor in the output of `objdump -T`.
fn above_floor(table: &str) -> Vec<(String, (u32, u32))> {
    versions(table).filter(|(_, version)| *version > FLOOR).collect()
}

/// Symbols of glibc that are used, with their versions.
fn versions(table: &str) -> impl Iterator<Item = (String, (u32, u32))> {
    table.lines().filter(|line| line.contains("*UND*")).filter_map(|line| {
        let (_, after) = line.split_once("GLIBC_")?;
        let mut parts = after.split([')', ' ']).filter(|part| !part.is_empty());
        let mut numbers = parts.next()?.split('.');
        let version = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        Some((parts.next()?.to_owned(), version))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let table = "\
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.9)  old
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.34) at_floor
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.36) arc4random
0000000000000000  w   D  *UND*\t0000000000000000              _ITM_x
0000000000000000      D  *UND*\t0000000000000000              gettid
0000000000001000 g    DF .text\t0000000000000010  Base        cuInit
";
        assert_eq!(unversioned(table), ["gettid"]);
        assert_eq!(above_floor(table), [("arc4random".to_owned(), (2, 36))]);
        assert_eq!(versions(table).map(|(_, version)| version).max(), Some((2, 36)));
    }
}
