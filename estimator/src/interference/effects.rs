//! Effects of programs that a formula misses: learned from residuals, shrunken towards the formula.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::nested::{Nested, Sum};

/// A program, by a number: equal ones share what was learned, and those of one family some of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Program(pub u64);

/// A program at any batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Family(u64);

impl Program {
    /// By its name, whatever names it: the upper half of the number is that of the family, the name without
    /// ` batch N` at its end (FNV-1a).
    #[must_use]
    pub fn named(name: &str) -> Self {
        let step = |digest: u64, byte: u8| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let digest = |name: &str| name.bytes().fold(0xcbf2_9ce4_8422_2325, step);
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let family = match name.rsplit_once(" batch ") {
            Some((family, batch)) if is_number(batch) => family,
            _ => name,
        };
        Self(digest(family) & !LOWER_HALF | digest(name) & LOWER_HALF)
    }

    /// Numbers without an upper half are families of their own.
    fn family(self) -> Family {
        Family(if self.0 > LOWER_HALF { self.0 & !LOWER_HALF } else { self.0 })
    }
}

const LOWER_HALF: u64 = 0xffff_ffff;

/// Residuals (observed speed - predicted speed) by program and neighbour, and the effects that follow from them: an own
/// effect of the program that is slowed, a partner effect of its neighbour, and what is left for that pair. Each is that
/// of the family, or of both families, and what the program, or the pair, adds to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    seen: BTreeMap<(Program, Program), Sum>,
    own: Nested<Program, Family>,
    partner: Nested<Program, Family>,
    pairs: Nested<(Program, Program), (Family, Family)>,
}

/// Shrinkage of own and partner effects as long as nothing is known, and the range in which it moves.
/// It is a number of observations without any effect: the variance of a single residual over that of the effects
/// (empirical Bayes).
const PRIOR: f64 = 2.0;
const PRIORS: (f64, f64) = (0.1, 8.0);

/// Programs whose effects tell as much of their variance as is assumed of it.
const TELLING: f64 = 20.0;

/// Shrinkage of a single pair's residual: it is noise first.
const PAIR_PRIOR: f64 = 2.0;

/// Rounds in which own and partner effects take turns.
const ROUNDS: usize = 4;

impl Effects {
    /// A program's speed beside a neighbour was off by `residual`. With several neighbours each gets its part of the
    /// weight. Effects change when [`Effects::learn`] is called.
    pub fn observe(&mut self, program: Program, neighbour: Program, residual: f64, weight: f64) {
        self.seen.entry((program, neighbour)).or_default().add(residual, weight);
    }

    /// Splits the residuals observed so far into effects.
    pub fn learn(&mut self) {
        (self.own, self.partner) = Default::default();
        let (mut own_prior, mut partner_prior) = (PRIOR, PRIOR);
        for _ in 0..ROUNDS {
            let (mut own, mut partner) = (BTreeMap::<Program, Sum>::new(), BTreeMap::<Program, Sum>::new());
            for (&(program, neighbour), seen) in &self.seen {
                let rest = seen.mean() - self.partner.of_member(neighbour, neighbour.family());
                own.entry(program).or_default().add(rest, seen.weight);
            }
            self.own = Nested::of(&own, Program::family, own_prior);
            for (&(program, neighbour), seen) in &self.seen {
                let rest = seen.mean() - self.own.of_member(program, program.family());
                partner.entry(neighbour).or_default().add(rest, seen.weight);
            }
            self.partner = Nested::of(&partner, Program::family, partner_prior);
            let mut noise = Sum::default();
            for (&(program, neighbour), seen) in &self.seen {
                noise.add((seen.mean() - self.main(program, neighbour)).powi(2), seen.weight);
            }
            own_prior = prior(own.values(), noise.shrunken(0.0));
            partner_prior = prior(partner.values(), noise.shrunken(0.0));
        }
        let rest = |(&(program, neighbour), seen): (&(Program, Program), &Sum)| {
            ((program, neighbour), seen.less(self.main(program, neighbour)))
        };
        let rests: BTreeMap<_, _> = self.seen.iter().map(rest).collect();
        self.pairs = Nested::of(&rests, |(one, other)| (one.family(), other.family()), PAIR_PRIOR);
    }

    /// Sum of the programs' own and partner effects, whatever the pair.
    fn main(&self, program: Program, neighbour: Program) -> f64 {
        self.own.of_member(program, program.family()) + self.partner.of_member(neighbour, neighbour.family())
    }

    /// Effect that is added to the predicted speed of a program beside a neighbour.
    #[must_use]
    pub fn of(&self, program: Program, neighbour: Program) -> f64 {
        let families = (program.family(), neighbour.family());
        self.main(program, neighbour) + self.pairs.of_member((program, neighbour), families)
    }

    /// Equal where equal effects follow: changes with each observation that is learned.
    pub(super) fn digest(&self) -> u64 {
        let mix =
            |digest: u64, bits: u64| (digest ^ bits).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let pairs = self.seen.iter().flat_map(|((program, neighbour), seen)| {
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
    fn a_batch_size_never_seen_has_the_effects_of_its_family() {
        let program = |batch| Program::named(&format!("python3 train.py batch {batch}"));
        let other = Program::named("python3 serve.py");
        let mut effects = Effects::default();
        for batch in [16, 32, 64] {
            effects.observe(program(batch), other, -0.3, 1.0);
        }
        effects.learn();
        let unseen = effects.of(program(128), other);
        assert!((-0.3..-0.15).contains(&unseen), "{unseen}");
        assert_ne!(program(16), program(32));
        // Numbers that are no digests of names, and other names, are families of their own.
        let others =
            [Program(1), Program(2), Program::named("python3 train.py batch x"), Program::named("a")];
        for name in others {
            let main = effects.partner.of_member(other, other.family());
            assert_eq!(effects.of(name, other), main, "{name:?}");
        }
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
