//! The sum of a row of words, which each request under a limit reads.
//!
//! All words are read, one by one or four at a time; there is no sum of a group that would have to be kept beside them. Such a sum is
//! read faster by a job of hundreds of processes, and costs every process two more locked instructions in each request and
//! release. A process that is killed between its word and the sum of its group would leave the sum too large for good: what
//! other processes add meanwhile hides by how much.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::words::bytes_of;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

/// Words of a cache line.
const LINE: usize = 8;
/// Up to so many words are read one by one, which begins sooner.
const MAX_SINGLE_READS: usize = 16;

/// Bytes of the first `used` words together; those behind them hold nothing. No read is moved before the caller's last
/// read-modify-write or fence.
#[inline]
pub(super) fn sum(words: &[AtomicU64], used: usize) -> u64 {
    if used <= MAX_SINGLE_READS {
        return words.iter().take(used).fold(0, add);
    }
    // Whole cache lines.
    let words = words.get(..used.next_multiple_of(LINE)).unwrap_or(words);
    let (lines, rest) = words.as_chunks::<LINE>();
    rest.iter().fold(of_lines(lines), add)
}

#[inline(always)]
fn add(sum: u64, word: &AtomicU64) -> u64 {
    sum + bytes_of(word.load(Relaxed))
}

/// Four chains of additions, so that one need not wait for the other.
fn one_by_one(lines: &[[AtomicU64; LINE]]) -> u64 {
    let mut sums = [0u64; 4];
    for line in lines {
        let (low, high) = line.split_at(LINE / 2);
        for ((sum, low), high) in sums.iter_mut().zip(low).zip(high) {
            *sum = add(add(*sum, low), high);
        }
    }
    sums.iter().sum()
}

#[cfg(any(not(target_arch = "x86_64"), loom))]
fn of_lines(lines: &[[AtomicU64; LINE]]) -> u64 {
    one_by_one(lines)
}

/// Four words a load where the processor has AVX2. The compiler makes no vector instructions of atomic loads, so these are
/// written by hand.
#[cfg(all(target_arch = "x86_64", not(loom)))]
#[inline(never)]
fn of_lines(lines: &[[AtomicU64; LINE]]) -> u64 {
    let range = lines.as_ptr_range();
    let is_aligned = range.start.addr().is_multiple_of(LINE * size_of::<AtomicU64>());
    if range.is_empty() || !is_aligned || !std::arch::is_x86_feature_detected!("avx2") {
        return one_by_one(lines);
    }
    let sum: u64;
    // SAFETY: the processor has the instructions, and what they read is what `lines` refers to. Each word is read whole:
    // processors with AVX load 16 aligned bytes at once. Loads of x86-64 are made in program order, vectors' included, and
    // the compiler moves none over this block, which it takes for one that reads and writes memory.
    unsafe {
        std::arch::asm!(
            "vmovq {mask}, {sum}",
            "vpbroadcastq {mask:y}, {mask}",
            "vpxor {a}, {a}, {a}",
            "vpxor {b}, {b}, {b}",
            "2:",
            "vpand {c:y}, {mask:y}, ymmword ptr [{at}]",
            "vpand {d:y}, {mask:y}, ymmword ptr [{at} + 32]",
            "vpaddq {a:y}, {a:y}, {c:y}",
            "vpaddq {b:y}, {b:y}, {d:y}",
            "add {at}, 64",
            "cmp {at}, {end}",
            "jb 2b",
            "vpaddq {a:y}, {a:y}, {b:y}",
            "vextracti128 {b}, {a:y}, 1",
            "vpaddq {a}, {a}, {b}",
            "vpshufd {b}, {a}, 0xee",
            "vpaddq {a}, {a}, {b}",
            "vmovq {sum}, {a}",
            "vzeroupper",
            at = inout(reg) range.start => _,
            end = in(reg) range.end,
            sum = inout(reg) bytes_of(u64::MAX) => sum,
            mask = out(xmm_reg) _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
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
        for end in 0..=64 {
            let row = row(|at| if at < end { empty(at as u32 * 77 + 1) | 1 << (at % 45) } else { 0 });
            assert_eq!(of_lines(row.0.as_chunks().0), one_by_one(row.0.as_chunks().0), "{end}");
            // Most of these do not begin with a cache line.
            for begin in 0..=end.min(LINE) {
                let words = &row.0[begin..];
                assert_eq!(sum(words, end - begin), words.iter().fold(0, add), "{begin}..{end}");
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
                let seen = sum(&row.0, row.0.len());
                assert!(seen == 0 || VALUES.contains(&seen), "{seen:#x}");
            }
            is_over.store(true, Relaxed);
        });
    }
}
