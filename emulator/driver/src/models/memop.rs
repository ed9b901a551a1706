//! Operations of streams on words of memory, as C programs describe them.

use radrm_cuda_abi::*;

use crate::util::ffi::Answer;

/// One operation on one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOp {
    /// Place.
    pub address: CUdeviceptr,
    /// Value that is waited for, written or combined.
    pub value: u64,
    /// 8 bytes, not 4.
    pub wide: bool,
    /// Action on the word.
    pub action: Action,
}

/// Action of a [`MemoryOp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Waits until the word compares so.
    Wait(Compare),
    /// Writes the value.
    Write,
    /// Combines word and value.
    Reduce(Reduction),
    /// Barriers and flushes: nothing to do.
    Nothing,
}

/// Comparison of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `(signed)(word - value) >= 0`.
    AtLeast,
    /// `word == value`.
    Equal,
    /// `word & value != 0`.
    AnyBit,
    /// `!(word | value) != 0`.
    AnyClear,
}

/// Reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Bitwise or.
    Or,
    /// Bitwise and.
    And,
    /// Addition that wraps.
    Add,
}

pub(crate) fn compares(op: &MemoryOp, how: Compare, word: u64) -> bool {
    let difference = if op.wide {
        word.wrapping_sub(op.value) as i64
    } else {
        i64::from((word as u32).wrapping_sub(op.value as u32) as i32)
    };
    let mask = if op.wide { u64::MAX } else { u64::from(u32::MAX) };
    match how {
        Compare::AtLeast => difference >= 0,
        Compare::Equal => difference == 0,
        Compare::AnyBit => word & op.value & mask != 0,
        Compare::AnyClear => !(word | op.value) & mask != 0,
    }
}

/// Reads one element of a batch, 48 bytes as C lays them out.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE.
pub fn parse(raw: &[u64; 6]) -> Answer<MemoryOp> {
    let flags = |at: usize| raw[at] as u32;
    let kind = raw[0] as u32;
    let plain = |wide, action| MemoryOp { address: raw[1], value: raw[2], wide, action };
    Ok(match kind {
        1 | 4 => plain(kind == 4, Action::Wait(compare(flags(3))?)),
        2 | 5 => plain(kind == 5, Action::Write),
        3 | 6 => plain(false, Action::Nothing),
        8 => {
            // operation, flags | reduction, data type | address | value
            let reduction = match raw[1] as u32 {
                5 => Reduction::And,
                6 => Reduction::Or,
                0 => Reduction::Add,
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            };
            const SCALAR_64: u32 = 1 << 4;
            let wide = (raw[1] >> 32) as u32 & SCALAR_64 != 0;
            MemoryOp { address: raw[2], value: raw[3], wide, action: Action::Reduce(reduction) }
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

pub(crate) fn compare(flags: u32) -> Answer<Compare> {
    const FLUSH: u32 = 1 << 30;
    Ok(match flags & !FLUSH {
        0 => Compare::AtLeast,
        1 => Compare::Equal,
        2 => Compare::AnyBit,
        3 => Compare::AnyClear,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(value: u64, wide: bool, action: Action) -> MemoryOp {
        MemoryOp { address: 0, value, wide, action }
    }

    #[test]
    fn comparisons_are_those_of_the_interface() {
        let narrow = op(0xffff_ffff, false, Action::Nothing);
        assert!(compares(&narrow, Compare::AtLeast, 0), "the comparison is cyclic");
        assert!(!compares(&narrow, Compare::AtLeast, 0xffff_fffe));
        assert!(compares(&op(6, true, Action::Nothing), Compare::AnyBit, 2));
        assert!(!compares(&narrow, Compare::AnyClear, 0), "only 32 bits count");
        assert!(compares(&op(5, true, Action::Nothing), Compare::Equal, 5));
    }

    #[test]
    fn batch_elements_are_read_as_c_lays_them_out() {
        let wait = parse(&[4, 0x1000, 17, 1, 0, 0]);
        assert_eq!(
            wait,
            Ok(MemoryOp { address: 0x1000, value: 17, wide: true, action: Action::Wait(Compare::Equal) })
        );
        let add = parse(&[8, (1 << 4) << 32, 0x2000, 3, 0, 0]);
        assert_eq!(
            add,
            Ok(MemoryOp { address: 0x2000, value: 3, wide: true, action: Action::Reduce(Reduction::Add) })
        );
        assert!(parse(&[99, 0, 0, 0, 0, 0]).is_err());
    }
}
