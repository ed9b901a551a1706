//! Effects of things that come in families, shrunken towards their family's and that towards nothing.

use std::collections::BTreeMap;

/// Sum and weight of residuals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) sum: f64,
    pub(super) weight: f64,
}

impl Sum {
    pub(super) fn add(&mut self, value: f64, weight: f64) {
        self.sum += value * weight;
        self.weight += weight;
    }

    pub(super) fn mean(self) -> f64 {
        self.sum / self.weight
    }

    /// The mean as if `prior` observations more had shown nothing.
    pub(super) fn shrunken(self, prior: f64) -> f64 {
        self.sum / (self.weight + prior)
    }

    /// The same with `value` taken off each.
    pub(super) fn less(self, value: f64) -> Self {
        Self { sum: self.sum - value * self.weight, weight: self.weight }
    }
}

/// Part of the variance of effects that lies between families; the rest is within them.
const BETWEEN: f64 = 0.5;

/// Effects of members, and of their families for members that were not seen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Nested<M, F> {
    members: BTreeMap<M, f64>,
    families: BTreeMap<F, f64>,
}

impl<M, F> Default for Nested<M, F> {
    fn default() -> Self {
        Self { members: BTreeMap::new(), families: BTreeMap::new() }
    }
}

impl<M: Ord + Copy, F: Ord + Copy> Nested<M, F> {
    /// The best linear prediction where effects have `1 / prior` of an observation's variance. An only child has the
    /// effect that it has without a family: `sum / (weight + prior)`.
    pub(super) fn of(seen: &BTreeMap<M, Sum>, family: impl Fn(M) -> F, prior: f64) -> Self {
        let within = prior / (1.0 - BETWEEN);
        let mut sums = BTreeMap::<F, Sum>::new();
        for (member, sum) in seen.iter().filter(|(_, sum)| sum.weight > 0.0) {
            sums.entry(family(*member)).or_default().add(sum.mean(), sum.weight / (sum.weight + within));
        }
        let families: BTreeMap<F, f64> =
            sums.into_iter().map(|(family, sum)| (family, sum.shrunken((1.0 - BETWEEN) / BETWEEN))).collect();
        let member = |(member, sum): (&M, &Sum)| {
            let shared = families.get(&family(*member)).copied().unwrap_or(0.0);
            (*member, shared + sum.less(shared).shrunken(within))
        };
        let members = seen.iter().map(member).collect();
        Self { members, families }
    }

    /// The effect of a member, 0 where neither it nor its family was seen.
    pub(super) fn of_member(&self, member: M, family: F) -> f64 {
        let found = self.members.get(&member).or_else(|| self.families.get(&family));
        found.copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seen: &[((u8, u8), f64, f64)], prior: f64) -> Nested<(u8, u8), u8> {
        let seen =
            seen.iter().map(|(member, mean, weight)| (*member, Sum { sum: mean * weight, weight: *weight }));
        Nested::of(&seen.collect(), |(family, _)| family, prior)
    }

    #[test]
    fn an_only_child_is_shrunken_as_if_it_had_no_family() {
        for (weight, prior) in [(1.0, 2.0), (7.0, 2.0), (3.0, 0.4)] {
            let found = of(&[((1, 1), -0.3, weight)], prior).of_member((1, 1), 1);
            assert!((found + 0.3 * weight / (weight + prior)).abs() < 1e-12, "{found}");
        }
    }

    #[test]
    fn an_unseen_member_has_its_familys_effect_and_others_none() {
        let found = of(&[((1, 1), -0.3, 5.0), ((1, 2), -0.2, 5.0), ((2, 1), 0.4, 5.0)], 2.0);
        let unseen = found.of_member((1, 3), 1);
        assert!((-0.25..-0.05).contains(&unseen), "{unseen}");
        assert!(found.of_member((1, 1), 1) < unseen);
        assert_eq!(found.of_member((3, 1), 3), 0.0);
    }

    #[test]
    fn siblings_count_for_a_member_that_was_seen_little() {
        let alone = of(&[((1, 1), -0.1, 1.0)], 2.0).of_member((1, 1), 1);
        let siblings = of(&[((1, 1), -0.1, 1.0), ((1, 2), -0.4, 20.0), ((1, 3), -0.4, 20.0)], 2.0);
        assert!(siblings.of_member((1, 1), 1) < 2.0 * alone);
    }
}
