//! The sum of a row of words, which each request under a limit reads.
//!
//! All words are read one by one or in pairs; there is no sum of a group that would have to be kept beside them. Such a sum is
//! read faster by a job of hundreds of processes, and costs every process two more locked instructions in each request and
//! release. A process that is killed between its word and the sum of its group would leave the sum too large for good: what
//! other processes add meanwhile hides by how much.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::words::bytes_of;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

/// Words of a cache line.
pub(super) const LINE: usize = 8;

/// Bytes of words together. Reads are not moved before the caller's last read-modify-write or fence.
#[inline]
pub(super) fn sum(words: &[AtomicU64]) -> u64 {
    let (lines, rest) = words.as_chunks::<LINE>();
    of_lines(lines) + one_by_one(rest)
}

fn one_by_one(words: &[AtomicU64]) -> u64 {
    words.iter().fold(0, |sum, word| sum + bytes_of(word.load(Relaxed)))
}

#[cfg(any(not(target_arch = "x86_64"), loom))]
fn of_lines(lines: &[[AtomicU64; LINE]]) -> u64 {
    one_by_one(lines.as_flattened())
}

/// Two words a load. The compiler makes no vector instructions of atomic loads, so these are written by hand.
#[cfg(all(target_arch = "x86_64", not(loom)))]
#[inline]
fn of_lines(lines: &[[AtomicU64; LINE]]) -> u64 {
    use std::arch::asm;

    let range = lines.as_ptr_range();
    if range.is_empty() || !range.start.addr().is_multiple_of(64) {
        return one_by_one(lines.as_flattened());
    }
    let sum: u64;
    // SAFETY: reads what `lines` is a reference to. Each word is read whole: processors with AVX load 16 aligned bytes at
    // once, older ones in aligned halves of 8. Loads of x86-64 are made in program order, vectors' included, and the compiler
    // moves none over this block, which it takes for one that reads and writes memory.
    unsafe {
        asm!(
            "movq {bytes}, {sum}",
            "punpcklqdq {bytes}, {bytes}",
            "pxor {a}, {a}",
            "pxor {b}, {b}",
            "2:",
            "movdqa {c}, xmmword ptr [{at}]",
            "movdqa {d}, xmmword ptr [{at} + 16]",
            "movdqa {e}, xmmword ptr [{at} + 32]",
            "movdqa {f}, xmmword ptr [{at} + 48]",
            "pand {c}, {bytes}",
            "pand {d}, {bytes}",
            "pand {e}, {bytes}",
            "pand {f}, {bytes}",
            "paddq {a}, {c}",
            "paddq {b}, {d}",
            "paddq {a}, {e}",
            "paddq {b}, {f}",
            "add {at}, 64",
            "cmp {at}, {end}",
            "jb 2b",
            "paddq {a}, {b}",
            "pshufd {b}, {a}, 0xee",
            "paddq {a}, {b}",
            "movq {sum}, {a}",
            at = inout(reg) range.start => _,
            end = in(reg) range.end,
            bytes = out(xmm_reg) _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            e = out(xmm_reg) _,
            f = out(xmm_reg) _,
            sum = inout(reg) bytes_of(u64::MAX) => sum,
            options(nostack),
        );
    }
    sum
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ledger::words::empty;
    use std::sync::atomic::AtomicBool;

    /// Words of a row, which begins with a cache line.
    #[repr(align(64))]
    struct Row([AtomicU64; 64]);

    fn row(value: impl Fn(usize) -> u64) -> Row {
        Row(std::array::from_fn(|at| AtomicU64::new(value(at))))
    }

    #[test]
    fn a_sum_has_every_word_once_and_no_generation() {
        let row = row(|at| empty(at as u32 * 77 + 1) | 1 << (at % 45));
        for begin in 0..LINE {
            for end in begin..=row.0.len() {
                let words = &row.0[begin..end];
                assert_eq!(sum(words), one_by_one(words), "{begin}..{end}");
            }
        }
    }

    #[test]
    fn words_that_change_are_read_whole() {
        const VALUES: [u64; 2] = [0xffff_ffff, 0xf_ffff_0000_0000];
        let (row, is_over) = (row(|_| 0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    for value in VALUES {
                        row.0[21].store(value, Relaxed);
                    }
                }
            });
            for _ in 0..200_000 {
                let seen = sum(&row.0);
                assert!(seen == 0 || VALUES.contains(&seen), "{seen:#x}");
            }
            is_over.store(true, Relaxed);
        });
    }
}
