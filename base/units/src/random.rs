//! Random numbers that are the same everywhere: SplitMix64 (Steele, Lea, Flood 2014).

/// A generator; equal seeds give equal numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// From a seed alone.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// From a seed and a stream: equal pairs give equal numbers, different ones independent.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed ^ stream.wrapping_mul(0xA24B_AED4_963E_E407));
        rng.bits();
        rng
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform between two bounds.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// One of the numbers below `n`; the first ones are likelier by at most `n` in 2^64.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    /// True once in `n` times.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Near a normal distribution with mean 0 and deviation 1: the sum of twelve uniform numbers,
    /// which needs no function that differs between machines.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        // Of the reference implementation (Vigna, splitmix64.c) from seed 1234567.
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        let mut rng = Rng::seeded(1_234_567);
        assert_eq!(expected.map(|_| rng.bits()), expected);
    }
}
