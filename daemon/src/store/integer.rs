//! Integers of SQLite, which are signed.

/// A value as SQLite has it; the largest that it has where that is less.
pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
