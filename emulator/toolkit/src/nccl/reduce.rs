//! Reductions of messages whose content is known: sums of counters, maxima of lengths and the like.

/// Bytes of an element of a `ncclDataType_t`.
pub(super) fn element(kind: i32) -> usize {
    match kind {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        4 | 5 | 8 => 8,
        _ => 4,
    }
}

const SUM: i32 = 0;
const PRODUCT: i32 = 1;
const MAXIMUM: i32 = 2;
const MINIMUM: i32 = 3;
const AVERAGE: i32 = 4;

macro_rules! of_type {
    ($all:expr, $operation:expr, $ty:ty, $($integer:ident)?) => {{
        const SIZE: usize = size_of::<$ty>();
        let numbers = |bytes: &[u8]| -> Vec<$ty> {
            bytes.as_chunks::<SIZE>().0.iter().map(|chunk| <$ty>::from_le_bytes(*chunk)).collect()
        };
        let mut sum = numbers($all[0]);
        for other in &$all[1..] {
            for (own, value) in sum.iter_mut().zip(numbers(other)) {
                *own = match $operation {
                    SUM | AVERAGE => of_type!(@add *own, value, $($integer)?),
                    PRODUCT => of_type!(@multiply *own, value, $($integer)?),
                    MAXIMUM => if value > *own { value } else { *own },
                    MINIMUM => if value < *own { value } else { *own },
                    _ => return None,
                };
            }
        }
        if $operation == AVERAGE {
            sum.iter_mut().for_each(|own| *own /= $all.len() as $ty);
        }
        Some(sum.into_iter().flat_map(<$ty>::to_le_bytes).collect())
    }};
    (@add $a:expr, $b:expr, integer) => { $a.wrapping_add($b) };
    (@add $a:expr, $b:expr,) => { $a + $b };
    (@multiply $a:expr, $b:expr, integer) => { $a.wrapping_mul($b) };
    (@multiply $a:expr, $b:expr,) => { $a * $b };
}

/// Reduces everyone's content; `None` if a type or an operation is not known here.
pub(super) fn reduce(all: &[&[u8]], kind: i32, operation: i32) -> Option<Vec<u8>> {
    if all.is_empty() || all.iter().any(|content| content.len() != all[0].len()) {
        return None;
    }
    match kind {
        0 => of_type!(all, operation, i8, integer),
        1 => of_type!(all, operation, u8, integer),
        2 => of_type!(all, operation, i32, integer),
        3 => of_type!(all, operation, u32, integer),
        4 => of_type!(all, operation, i64, integer),
        5 => of_type!(all, operation, u64, integer),
        7 => of_type!(all, operation, f32,),
        8 => of_type!(all, operation, f64,),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_on_integers_and_floats() {
        let longs = |values: &[i64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let (one, other) = (longs(&[1, 9]), longs(&[3, 5]));
        let all = [one.as_slice(), &other];
        for (operation, want) in
            [(SUM, [4, 14]), (PRODUCT, [3, 45]), (MAXIMUM, [3, 9]), (MINIMUM, [1, 5]), (AVERAGE, [2, 7])]
        {
            assert_eq!(reduce(&all, 4, operation), Some(longs(&want)), "operation {operation}");
        }
        let floats = [1.5_f32.to_le_bytes(), 2.5_f32.to_le_bytes()];
        assert_eq!(
            reduce(&floats.each_ref().map(|float| &float[..]), 7, SUM),
            Some(4.0_f32.to_le_bytes().to_vec())
        );
        assert_eq!(reduce(&all, 4, 9), None);
        assert_eq!(reduce(&[&[1], &[1, 2]], 0, SUM), None);
    }
}
