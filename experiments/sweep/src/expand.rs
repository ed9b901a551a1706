//! Combinations of values: all of them, or some at random. Pure.

use std::collections::BTreeSet;

use radrm_base::random::Rng;

/// Runs of a sweep; a file with more is taken for a slip.
pub const MAX_RUNS: u64 = 100_000;

/// All combinations of indices into lists of these lengths, the last list fastest; `None` above [`MAX_RUNS`].
#[must_use]
pub fn combinations(lists: &[usize]) -> Option<Vec<Vec<usize>>> {
    let count = lists.iter().try_fold(1_u64, |count, list| count.checked_mul(*list as u64))?;
    if count > MAX_RUNS {
        return None;
    }
    let mut all = vec![Vec::new()];
    for list in lists {
        all = all
            .iter()
            .flat_map(|picks| (0..*list).map(move |pick| [picks.as_slice(), &[pick]].concat()))
            .collect();
    }
    Some(all)
}

/// Brings a list into a random order.
pub fn shuffle<T>(list: &mut [T], rng: &mut Rng) {
    for last in (1..list.len()).rev() {
        list.swap(last, below(rng, last as u64 + 1) as usize);
    }
}

/// A number below `bound`, each as likely: numbers of the incomplete last round are drawn again.
fn below(rng: &mut Rng, bound: u64) -> u64 {
    let whole = u64::MAX - u64::MAX % bound;
    loop {
        let bits = rng.bits();
        if bits < whole {
            return bits % bound;
        }
    }
}

/// Values of an axis of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum Axis {
    /// One of these.
    List(Vec<String>),
    /// A number between two bounds.
    Range {
        /// The lower bound.
        from: f64,
        /// The upper bound.
        to: f64,
        /// Uniform in the logarithm.
        log: bool,
        /// Only whole numbers, the bounds included.
        whole: bool,
    },
}

impl Axis {
    fn draw(&self, rng: &mut Rng) -> String {
        match self {
            Self::List(values) => {
                values.get(below(rng, values.len().max(1) as u64) as usize).cloned().unwrap_or_default()
            }
            Self::Range { from, to, log, whole } => {
                let (low, high) = if *whole { (from - 0.5, to + 0.5) } else { (*from, *to) };
                let value = match log {
                    // A whole number of a logarithmic range can start at 1, which is above 0.5.
                    true => rng.between(low.ln(), high.ln()).exp(),
                    false => rng.between(low, high),
                };
                if *whole {
                    format!("{}", value.round().clamp(*from, *to) as i64)
                } else {
                    number(value.clamp(*from, *to))
                }
            }
        }
    }
}

/// A number in six digits: no program can tell more of a sample, and every column can show it.
fn number(value: f64) -> String {
    let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    let text = format!("{rounded}");
    if text.len() > 12 { format!("{rounded:e}") } else { text }
}

/// Draws without repetition that are given up: the ranges have no more values.
const MAX_REPEATED: u32 = 10_000;

/// Different samples of a space; `None` if it does not have so many. Lists alone give at most all their combinations, in
/// random order.
#[must_use]
pub fn samples(axes: &[Axis], count: u64, seed: u64) -> Option<Vec<Vec<String>>> {
    let mut rng = Rng::new(seed, 0);
    let lists: Vec<&Vec<String>> = axes
        .iter()
        .filter_map(|axis| if let Axis::List(values) = axis { Some(values) } else { None })
        .collect();
    if lists.len() == axes.len() {
        let lengths: Vec<usize> = lists.iter().map(|values| values.len()).collect();
        if let Some(mut all) = combinations(&lengths) {
            shuffle(&mut all, &mut rng);
            all.truncate(usize::try_from(count).unwrap_or(usize::MAX));
            let texts = |picks: Vec<usize>| {
                picks.iter().zip(&lists).map(|(pick, values)| values[*pick].clone()).collect()
            };
            return Some(all.into_iter().map(texts).collect());
        }
    }
    let (mut seen, mut found, mut repeated) = (BTreeSet::new(), Vec::new(), 0);
    while (found.len() as u64) < count {
        let sample: Vec<String> = axes.iter().map(|axis| axis.draw(&mut rng)).collect();
        if seen.insert(sample.clone()) {
            found.push(sample);
            repeated = 0;
        } else {
            repeated += 1;
            if repeated > MAX_REPEATED {
                return None;
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use radrm_base::random::Rng;

    use super::*;

    #[test]
    fn a_space_that_is_too_small_for_the_samples_is_found_out() {
        let bit = Axis::Range { from: 0.0, to: 1.0, log: false, whole: true };
        assert_eq!(samples(&[bit.clone(), bit.clone()], 4, 1).unwrap().len(), 4);
        assert_eq!(samples(&[bit], 3, 1), None);
    }

    #[test]
    fn numbers_are_short_and_exact_enough() {
        for (value, expected) in [
            (0.1, "0.1"),
            (1.234_567_89, "1.23457"),
            (1e-9, "0.000000001"),
            (1.5e-12, "1.5e-12"),
            (3e20, "3e20"),
        ] {
            assert_eq!(number(value), expected);
        }
    }

    fn axis() -> impl Strategy<Value = Axis> {
        prop_oneof![
            prop::collection::btree_set("[a-z]{1,3}", 1..6)
                .prop_map(|values| Axis::List(values.into_iter().collect())),
            (1.0..1e3_f64, 1.0..1e3_f64, any::<bool>()).prop_map(|(from, by, log)| Axis::Range {
                from,
                to: from + by,
                log,
                whole: false
            }),
            (1..100_u32, 50..100_u32, any::<bool>()).prop_map(|(from, by, log)| Axis::Range {
                from: from.into(),
                to: (from + by).into(),
                log,
                whole: true
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_grid_has_as_many_combinations_as_the_product_of_its_lists(lists in prop::collection::vec(1..7_usize, 0..5)) {
            let all = combinations(&lists).unwrap();
            prop_assert_eq!(all.len(), lists.iter().product::<usize>());
            let different: BTreeSet<_> = all.iter().collect();
            prop_assert_eq!(different.len(), all.len());
            for picks in &all {
                prop_assert!(picks.len() == lists.len() && picks.iter().zip(&lists).all(|(pick, list)| pick < list));
            }
        }

        #[test]
        fn equal_seeds_give_equal_samples_and_no_sample_twice(
            axes in prop::collection::vec(axis(), 1..4), count in 1..40_u64, seed in any::<u64>()
        ) {
            let Some(found) = samples(&axes, count, seed) else { return Ok(()) };
            let again = samples(&axes, count, seed);
            prop_assert_eq!(Some(&found), again.as_ref());
            let different: BTreeSet<_> = found.iter().collect();
            prop_assert_eq!(different.len(), found.len());
            let product = axes.iter().try_fold(1_u64, |all, axis| match axis {
                Axis::List(values) => Some(all * values.len() as u64),
                Axis::Range { .. } => None,
            });
            prop_assert_eq!(found.len() as u64, product.map_or(count, |product| product.min(count)));
            for (axis, value) in found.iter().flat_map(|sample| axes.iter().zip(sample)) {
                match axis {
                    Axis::List(values) => prop_assert!(values.contains(value)),
                    Axis::Range { from, to, .. } => {
                        let value: f64 = value.parse().unwrap();
                        // A sample is written in six digits.
                        prop_assert!(*from * 0.999_99 <= value && value <= *to * 1.000_01, "{} in {}..{}", value, from, to);
                    }
                }
            }
        }

        #[test]
        fn a_shuffled_list_has_the_same_members(list in prop::collection::vec(any::<u16>(), 0..40), seed in any::<u64>()) {
            let mut shuffled = list.clone();
            shuffle(&mut shuffled, &mut Rng::new(seed, 0));
            let sorted = |mut list: Vec<u16>| { list.sort_unstable(); list };
            prop_assert_eq!(sorted(shuffled), sorted(list));
        }
    }
}
