//! The bounds of a sum whose parts are known only by spans of time.

use crate::units::{Bytes, Nanos};

/// Bounds of one part of the sum in a span. The spans of one part do not overlap; outside of them it is zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    pub(crate) start: Nanos,
    /// Not part of the span, and later than `start`.
    pub(crate) end: Nanos,
    /// Never more than this.
    pub(crate) most: Bytes,
    /// Never less than this.
    pub(crate) least: Bytes,
    /// Exactly this when the span begins.
    pub(crate) before: Bytes,
    /// This much at some moment of the span.
    pub(crate) reached: Bytes,
}

/// Between what the highest value of the sum lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) most: Bytes,
    pub(crate) at_least: Bytes,
    /// Time at which `most` would be reached first.
    pub(crate) t: Nanos,
}

/// The tightest bounds that follow from the spans of all parts.
pub(crate) fn bounds(reaches: &[Reach]) -> Bounds {
    // Damaged figures may have spans without a length.
    let reaches: Vec<&Reach> = reaches.iter().filter(|reach| reach.start < reach.end).collect();
    let mut times: Vec<Nanos> = reaches.iter().flat_map(|reach| [reach.start, reach.end]).collect();
    times.sort_unstable();
    times.dedup();
    let at = |t: Nanos| times.partition_point(|time| *time < t);

    // Changes at the times, then sums from one time to the next.
    let mut most = vec![0i128; times.len()];
    let mut least = vec![0i128; times.len()];
    // What is known exactly at a time beyond what is certain from there on.
    let mut beyond = vec![0i128; times.len()];
    for reach in &reaches {
        let (start, end) = (at(reach.start), at(reach.end));
        for (sums, bytes) in [(&mut most, reach.most), (&mut least, reach.least)] {
            sums[start] += i128::from(bytes.0);
            sums[end] -= i128::from(bytes.0);
        }
        beyond[start] += i128::from(reach.before.minus(reach.least).0);
    }
    for sums in [&mut most, &mut least] {
        let mut sum = 0;
        for value in sums.iter_mut() {
            sum += *value;
            *value = sum;
        }
    }

    let lowest = Lowest::new(&least);
    let between_spans = least.iter().zip(&beyond).map(|(least, beyond)| least + beyond).max();
    let within_spans = reaches
        .iter()
        .map(|reach| {
            let others = lowest.of(at(reach.start), at(reach.end)) - i128::from(reach.least.0);
            others + i128::from(reach.reached.0)
        })
        .max();
    let narrow = |bytes: i128| Bytes(u64::try_from(bytes.max(0)).unwrap_or(u64::MAX));
    let highest = most.iter().copied().max().unwrap_or(0);
    let first = most.iter().position(|bytes| *bytes == highest).and_then(|at| times.get(at));
    Bounds {
        most: narrow(highest),
        at_least: narrow(between_spans.max(within_spans).unwrap_or(0)),
        t: first.copied().unwrap_or_default(),
    }
}

/// Answers for the lowest of some neighbouring values: a segment tree.
struct Lowest {
    leaves: usize,
    nodes: Vec<i128>,
}

impl Lowest {
    fn new(values: &[i128]) -> Lowest {
        let leaves = values.len();
        let mut nodes = vec![0; leaves];
        nodes.extend_from_slice(values);
        for node in (1..leaves).rev() {
            nodes[node] = nodes[2 * node].min(nodes[2 * node + 1]);
        }
        Lowest { leaves, nodes }
    }

    /// The lowest of the values `from..to`, of which there is at least one.
    fn of(&self, from: usize, to: usize) -> i128 {
        let (mut from, mut to) = (from + self.leaves, to + self.leaves);
        let mut lowest = i128::MAX;
        while from < to {
            if from % 2 == 1 {
                lowest = lowest.min(self.nodes[from]);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                lowest = lowest.min(self.nodes[to]);
            }
            from /= 2;
            to /= 2;
        }
        lowest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A part's true course: its value from each whole moment to the next.
    type Course = Vec<u64>;

    /// Cuts a course into spans at random; a span shows what a timeline would.
    fn cut(course: &Course, widths: &[usize]) -> Vec<Reach> {
        let mut reaches = Vec::new();
        let mut start = 0;
        for width in widths.iter().cycle() {
            let end = (start + width).min(course.len());
            if start >= end {
                break;
            }
            let part = &course[start..end];
            let before = if start == 0 { 0 } else { course[start - 1] };
            let (least, most) = (part.iter().min().unwrap(), part.iter().max().unwrap());
            let quiet = least == most && *most == before;
            reaches.push(Reach {
                start: Nanos(start as u64),
                end: Nanos(end as u64),
                most: Bytes(before.max(*most)),
                least: Bytes(if quiet { before } else { 0 }),
                before: Bytes(before),
                reached: Bytes(*most),
            });
            start = end;
        }
        reaches
    }

    proptest! {
        #[test]
        fn the_true_peak_lies_between_the_bounds(
            parts in prop::collection::vec(
                (prop::collection::vec(0u64..5, 1..24), prop::collection::vec(1usize..6, 1..6)),
                1..5,
            )
        ) {
            let reaches: Vec<Reach> = parts.iter().flat_map(|(course, widths)| cut(course, widths)).collect();
            let sum_at = |t: usize| parts.iter().map(|(c, _)| c.get(t).copied().unwrap_or(0)).sum::<u64>();
            let peak = (0..24).map(sum_at).max().unwrap();
            let found = bounds(&reaches);
            prop_assert!(found.at_least.0 <= peak && peak <= found.most.0, "{peak} is not in {found:?}");
            if parts.len() == 1 {
                prop_assert_eq!(found.at_least, found.most);
            }
        }

        #[test]
        fn spans_of_one_moment_leave_no_doubt(
            parts in prop::collection::vec(prop::collection::vec(0u64..5, 1..24), 1..5)
        ) {
            // Every value is known at its moment.
            let reaches: Vec<Reach> = parts
                .iter()
                .flat_map(|course| course.iter().enumerate())
                .map(|(t, &bytes)| {
                    let (start, end, bytes) = (Nanos(t as u64), Nanos(t as u64 + 1), Bytes(bytes));
                    Reach { start, end, most: bytes, least: bytes, before: bytes, reached: bytes }
                })
                .collect();
            let sum_at = |t: usize| parts.iter().map(|c| c.get(t).copied().unwrap_or(0)).sum::<u64>();
            let peak = Bytes((0..24).map(sum_at).max().unwrap());
            let found = bounds(&reaches);
            prop_assert_eq!((found.at_least, found.most), (peak, peak));
        }
    }

    #[test]
    fn nothing_has_no_peak() {
        assert_eq!(bounds(&[]), Bounds::default());
    }
}
