//! Time, activity and energy of GPU operations on a card that may not be at hand, with a bound.
//!
//! Everything here is a pure function of its arguments: no file, no clock of the system, no random number.
//! [`Clock::time`] predicts one operation: a physical time ([`roofline`]) times an efficiency that trees have learned
//! from published measurements ([`learned`]). [`Step`] adds operations up.
//!
//! | module | has |
//! |---|---|
//! | [`work`] | operations: kind, types, sizes, FLOP, bytes |
//! | [`card`] | facts of a card, from the emulator's list of GPU models or any TOML file |
//! | [`roofline`] | physical time with wave quantisation |
//! | [`features`] | rows that the trees see |
//! | [`learned`] | the trees of one kind of work, with their bounds |
//! | [`train`] | learning from measurements; cards and shapes left out |
//! | [`assumed`] | times of operations that were not measured |
//! | [`power`] | power, and the price in time of a power limit |
//! | [`step`] | sums of operations, host-bound steps |
//!
//! `docs/clock.md` says what is predicted from what, and how far off it is; `bench/CLOCK.md` has the tables.

pub mod assumed;
pub mod card;
pub mod features;
pub mod learned;
pub mod power;
pub mod roofline;
pub mod step;
pub mod train;
pub mod work;

use serde::{Deserialize, Serialize};

use radrm_estimator::Error;

pub use card::{Card, Cards};
pub use learned::Learned;
pub use power::Power;
pub use step::{HostTime, Limit, Step, StepTime};
pub use work::{Collective, Kind, Link, Operands, Precision, Shape, Work};

/// Version of the model files that are written and read.
pub const VERSION: u64 = 1;

/// The shipped model file.
pub const SHIPPED: &str = include_str!("../data/clock.json");

/// Predicted time of an operation, and what it does to the card meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Time on the GPU, seconds.
    pub time: f64,
    /// Lower end of the bound, seconds.
    pub low: f64,
    /// Upper end of the bound, seconds.
    pub high: f64,
    /// Part of operations whose time lies between `low` and `high`, 0 to 1.
    pub coverage: f64,
    /// True if the model has seen measurements of this kind on this card. Else the bound is that of cards left out of
    /// the training.
    pub card_measured: bool,
    /// Part of the multiprocessors with work, mean over the time, 0 to 1.
    pub sm_share: f64,
    /// Part of the memory bandwidth in use, mean over the time, 0 to 1.
    pub dram_share: f64,
    /// Energy of the card, J.
    pub energy: f64,
    /// Lower end of the energy, J. Its range is that of the programs whose power was measured, without a coverage.
    pub energy_low: f64,
    /// Upper end of the energy, J.
    pub energy_high: f64,
}

/// A trained clock: one [`Learned`] for each kind of work that was measured, and the power of cards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    version: u64,
    /// Origin of the measurements.
    origin: String,
    kinds: Vec<Learned>,
    power: Power,
}

impl Clock {
    /// A clock of trained parts.
    #[must_use]
    pub fn new(origin: &str, kinds: Vec<Learned>, power: Power) -> Self {
        Self { version: VERSION, origin: origin.to_owned(), kinds, power }
    }

    /// The clock that is shipped.
    ///
    /// # Errors
    /// Only if the committed file is malformed, which a test excludes.
    pub fn shipped() -> Result<Self, Error> {
        Self::parse(SHIPPED)
    }

    /// Reads a model file, which may come from anywhere: each index, number and size is checked.
    ///
    /// # Errors
    /// Another version, or what is wrong with the file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > radrm_estimator::model::MAX_FILE {
            return Err(Error::Malformed("the file is too long".into()));
        }
        let clock: Self = serde_json::from_str(text).map_err(|error| Error::Json(error.to_string()))?;
        if clock.version != VERSION {
            return Err(Error::Version { found: clock.version, known: VERSION });
        }
        clock.kinds.iter().try_for_each(Learned::check)?;
        clock.power.check()?;
        Ok(clock)
    }

    /// The clock as the text of a file.
    ///
    /// # Errors
    /// A value cannot be written: it cannot happen for a clock that was trained or read.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|error| Error::Json(error.to_string()))
    }

    /// Origin of the measurements, one sentence.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Parts of the clock, one for each measured kind of work.
    #[must_use]
    pub fn kinds(&self) -> &[Learned] {
        &self.kinds
    }

    /// Predicts an operation at the card's own power limit ([`Card::with_power_limit`] changes it).
    ///
    /// Returns `None` if the kind or the types were not measured on any card, if the card lacks the types, or if the
    /// operation is described badly: an unknown operation is never given a time.
    #[must_use]
    pub fn time(&self, work: &Work, card: &Card) -> Option<Prediction> {
        let physical = roofline::physical(work, card)?;
        let learned = self.kinds.iter().find(|learned| learned.kind == work.kind())?;
        let (time, margin, card_measured) = learned.predict(work, card, &physical)?;
        let sm_share = (physical.filled * (1.0 - physical.floor / time).max(0.0)).clamp(0.0, 1.0);
        let dram_share = roofline::dram_bytes(work, card) / (time * card.bandwidth());
        let dram_share = dram_share.clamp(0.0, 1.0);
        // The measurements were made at the default limit: a lower one costs time.
        let slower = self.power.slowdown(card);
        let [watts_low, watts, watts_high] = self.power.watts(card);
        let time = time * slower;
        let (low, high) = (time / margin.exp(), time * margin.exp());
        Some(Prediction {
            time,
            low,
            high,
            coverage: learned.level,
            card_measured,
            sm_share,
            dram_share: dram_share / slower,
            energy: time * watts,
            energy_low: low * watts_low,
            energy_high: high * watts_high,
        })
    }
}

#[cfg(test)]
mod tests;
