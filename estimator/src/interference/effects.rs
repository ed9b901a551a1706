//! What programs do that a formula misses: learned from residuals, shrunken towards it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A program, by a number: equal ones share what was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Program(pub u64);

impl Program {
    /// By its name, whatever names it (FNV-1a, 64 bits).
    #[must_use]
    pub fn named(name: &str) -> Self {
        let step = |digest: u64, byte: u8| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(name.bytes().fold(0xcbf2_9ce4_8422_2325, step))
    }
}

/// Sum and weight of residuals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sum {
    sum: f64,
    weight: f64,
}

impl Sum {
    fn add(&mut self, value: f64, weight: f64) {
        self.sum += value * weight;
        self.weight += weight;
    }

    fn mean(self) -> f64 {
        self.sum / self.weight
    }

    /// The mean as if `prior` observations more had shown nothing.
    fn shrunken(self, prior: f64) -> f64 {
        self.sum / (self.weight + prior)
    }
}

/// Residuals (observed speed - predicted speed) by program and neighbour, and the effects that follow from them: an own
/// effect of the program that is slowed, a partner effect of its neighbour, and what is left for that pair.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    pairs: BTreeMap<(Program, Program), Sum>,
    own: BTreeMap<Program, f64>,
    partner: BTreeMap<Program, f64>,
}

/// How many observations without any effect own and partner effects are shrunken by, as long as nothing is known, and the
/// range in which it moves: it is the variance of a single residual over that of the effects (empirical Bayes).
const PRIOR: f64 = 2.0;
const PRIORS: (f64, f64) = (0.1, 8.0);

/// Programs whose effects tell as much of their variance as is assumed of it.
const TELLING: f64 = 20.0;

/// What a single pair's residual is shrunken by: it is noise first.
const PAIR_PRIOR: f64 = 2.0;

/// Rounds in which own and partner effects take turns.
const ROUNDS: usize = 4;

impl Effects {
    /// A program's speed beside a neighbour was off by `residual`. With several neighbours each gets its part of the
    /// weight. Effects change when [`Effects::learn`] is called.
    pub fn observe(&mut self, program: Program, neighbour: Program, residual: f64, weight: f64) {
        self.pairs.entry((program, neighbour)).or_default().add(residual, weight);
    }

    /// Splits the residuals observed so far into effects.
    pub fn learn(&mut self) {
        self.partner.clear();
        let (mut own_prior, mut partner_prior) = (PRIOR, PRIOR);
        for _ in 0..ROUNDS {
            let (mut own, mut partner) = (BTreeMap::<Program, Sum>::new(), BTreeMap::<Program, Sum>::new());
            for (program, neighbour, seen) in self.seen() {
                let explained = self.partner.get(&neighbour).copied().unwrap_or(0.0);
                own.entry(program).or_default().add(seen.mean() - explained, seen.weight);
            }
            for (program, neighbour, seen) in self.seen() {
                let rest = seen.mean() - own[&program].shrunken(own_prior);
                partner.entry(neighbour).or_default().add(rest, seen.weight);
            }
            let mut noise = Sum::default();
            for (program, neighbour, seen) in self.seen() {
                let explained =
                    own[&program].shrunken(own_prior) + partner[&neighbour].shrunken(partner_prior);
                noise.add((seen.mean() - explained).powi(2), seen.weight);
            }
            let shrunken = |effects: &BTreeMap<Program, Sum>, prior: f64| {
                effects.iter().map(|(program, sum)| (*program, sum.shrunken(prior))).collect()
            };
            let learned = (shrunken(&own, own_prior), shrunken(&partner, partner_prior));
            own_prior = prior(own.values(), noise.shrunken(0.0));
            partner_prior = prior(partner.values(), noise.shrunken(0.0));
            (self.own, self.partner) = learned;
        }
    }

    fn seen(&self) -> impl Iterator<Item = (Program, Program, &Sum)> {
        self.pairs.iter().map(|((program, neighbour), seen)| (*program, *neighbour, seen))
    }

    /// What is added to the predicted speed of a program beside a neighbour.
    #[must_use]
    pub fn of(&self, program: Program, neighbour: Program) -> f64 {
        let main = self.own.get(&program).copied().unwrap_or(0.0)
            + self.partner.get(&neighbour).copied().unwrap_or(0.0);
        let rest = self.pairs.get(&(program, neighbour)).map_or(0.0, |seen| {
            Sum { sum: seen.sum - main * seen.weight, weight: seen.weight }.shrunken(PAIR_PRIOR)
        });
        main + rest
    }

    /// Equal where equal effects follow: changes with each observation that is learned.
    pub(super) fn digest(&self) -> u64 {
        let mix =
            |digest: u64, bits: u64| (digest ^ bits).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let pairs = self.seen().flat_map(|(program, neighbour, seen)| {
            [program.0, neighbour.0, seen.sum.to_bits(), seen.weight.to_bits()]
        });
        pairs.fold(0, mix)
    }
}

/// Variance of a residual over that of effects, from the means of several programs: of those the noise is taken off. Few
/// programs move it little.
fn prior<'a>(effects: impl ExactSizeIterator<Item = &'a Sum>, noise: f64) -> f64 {
    let programs = effects.len() as f64;
    let variance =
        effects.map(|sum| sum.mean().powi(2) - noise / sum.weight).sum::<f64>() / programs.max(1.0);
    let seen = if variance > 0.0 { (noise / variance).clamp(PRIORS.0, PRIORS.1) } else { PRIORS.1 };
    ((programs * seen.ln() + TELLING * PRIOR.ln()) / (programs + TELLING)).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_and_partner_effects_are_told_apart() {
        let mut effects = Effects::default();
        let named = Program::named;
        let names = ["a", "b", "c", "d", "e", "f"];
        // a is slowed more than predicted by all, all are slowed more by b.
        for program in names {
            for neighbour in names {
                let residual =
                    f64::from(u8::from(program == "a")) * -0.2 + f64::from(u8::from(neighbour == "b")) * -0.1;
                effects.observe(named(program), named(neighbour), residual, 1.0);
            }
        }
        assert_eq!(effects.of(named("a"), named("b")) * 0.0, 0.0);
        effects.learn();
        let unseen = effects.of(named("a"), named("new"));
        assert!((-0.2..-0.1).contains(&unseen), "{unseen}");
        let partner = effects.of(named("new"), named("b"));
        assert!((-0.1..-0.05).contains(&partner), "{partner}");
        assert_eq!(effects.of(named("new"), named("other")), 0.0);
        assert!(effects.of(named("c"), named("d")).abs() < 0.02);
    }

    #[test]
    fn one_observation_counts_a_third_and_many_count_whole() {
        let after = |times: usize| {
            let mut effects = Effects::default();
            (0..times).for_each(|_| effects.observe(Program(1), Program(2), -0.3, 1.0));
            effects.learn();
            effects.of(Program(1), Program(2))
        };
        assert!((-0.25..-0.1).contains(&after(1)), "{}", after(1));
        assert!(after(1) > after(2) && after(100) < -0.29);
    }
}
