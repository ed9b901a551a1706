//! Times of operations that no table here measured: an assumption, and always named as one.
//!
//! Such an operation takes its own physical time by the efficiency of the nearest kind that was measured. Its bound is that
//! kind's, and at least a factor of [`FACTOR`] to either side; no measurement says how often that holds.

use crate::work::{Operands, Precision, Shape, Work};
use crate::{Card, Clock, Prediction, roofline};

/// Factor by which the time of an operation may differ from the assumed one, at least.
pub const FACTOR: f64 = 2.0;

/// Parts of the bus' rate that a copy between host and card reaches: at least, as expected, at most. The least is that of memory
/// that is not pinned.
const BUS_PARTS: [f64; 3] = [0.1, 0.5, 1.0];
/// Time of the smallest copy between host and card, seconds.
const BUS_LATENCY: f64 = 5e-6;

impl Clock {
    /// Assumed time of an operation that [`Clock::time`] has none for.
    ///
    /// Returns `None` if no measured kind is near, or if the card lacks the types.
    #[must_use]
    pub fn assumed(&self, work: &Work, card: &Card) -> Option<Prediction> {
        if let Shape::HostCopy { bytes } = work.shape {
            return self.host_copy(bytes, card);
        }
        let near = nearest(work)?;
        let known = self.time(&near, card)?;
        let longer = match (roofline::physical(work, card), roofline::physical(&near, card)) {
            (Some(own), Some(near)) => own.time() / near.time(),
            _ => 1.0,
        };
        let time = known.time * longer;
        let factor = (known.high / known.time).max(FACTOR);
        let dram_share = roofline::dram_bytes(work, card) / (time * card.bandwidth());
        Some(Prediction {
            time,
            low: time / factor,
            high: time * factor,
            card_measured: false,
            dram_share: dram_share.clamp(0.0, 1.0),
            energy: known.energy * longer,
            energy_low: known.energy_low * longer / FACTOR,
            energy_high: known.energy_high * longer * FACTOR,
            ..known
        })
    }

    fn host_copy(&self, bytes: f64, card: &Card) -> Option<Prediction> {
        let rate = card.bus_bandwidth()?;
        let [high, time, low] = BUS_PARTS.map(|part| BUS_LATENCY + bytes / (rate * part));
        let [watts, _, watts_high] = self.power.watts(card);
        Some(Prediction {
            time,
            low,
            high,
            coverage: 0.0,
            card_measured: false,
            sm_share: 0.0,
            dram_share: (bytes / (time * card.bandwidth())).clamp(0.0, 1.0),
            // Multiprocessors rest meanwhile: it takes less than the least of a busy card.
            energy: time * watts,
            energy_low: 0.0,
            energy_high: high * watts_high,
        })
    }
}

/// The operation of a measured kind that is nearest to one that was not measured.
fn nearest(work: &Work) -> Option<Work> {
    let half = Operands::of(Precision::F16);
    let single = Operands::of(Precision::F32);
    let by_size = if work.types.operand.bytes() < 4.0 { half } else { single };
    let near = match work.shape {
        Shape::Gemm { .. } if work.types.operand == Precision::Tf32 => Work::of(work.shape, half),
        Shape::Convolution { .. } if work.types.operand == Precision::F32 => Work::of(work.shape, single),
        Shape::Convolution { batch, channels_in, channels_out, pixels_out, window, groups, .. }
            if work.types.operand != Precision::F64 =>
        {
            let product = Shape::Gemm {
                batch: groups,
                m: batch * pixels_out,
                n: channels_out / groups,
                k: channels_in / groups * window,
            };
            Work::of(product, half)
        }
        Shape::AttentionPrefill { .. } | Shape::AttentionDecode { .. }
            if work.types.operand != Precision::F64 =>
        {
            Work::of(work.shape, half)
        }
        Shape::Reduction { rows, columns } => Work::of(Shape::Norm { rows, columns }, by_size),
        Shape::Norm { .. } | Shape::Elementwise { .. } => Work::of(work.shape, by_size),
        Shape::Softmax { .. } => Work::of(work.shape, single),
        Shape::Copy { bytes } => {
            let elements = (bytes / 4.0).max(1.0).ceil();
            Work::of(Shape::Elementwise { elements, inputs: 1.0 }, single)
        }
        _ => return None,
    };
    Some(near)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cards;

    fn card(id: &str) -> Card {
        let list = include_str!("../../emulator/machine/data/models.toml");
        Cards::parse(list).unwrap().find(id).unwrap().clone()
    }

    #[test]
    fn an_assumed_time_has_a_wide_bound_and_follows_the_bytes() {
        let (clock, card) = (Clock::shipped().unwrap(), card("A100-80GB"));
        let reduction = |rows| {
            let shape = Shape::Reduction { rows, columns: 4096.0 };
            clock.assumed(&Work::of(shape, Operands::of(Precision::Bf16)), &card).unwrap()
        };
        let (small, large) = (reduction(8192.0), reduction(65536.0));
        assert!(large.time > 4.0 * small.time, "{} {}", large.time, small.time);
        assert!(large.high / large.time >= FACTOR && large.time / large.low >= FACTOR);
        assert!(!large.card_measured);
    }

    #[test]
    fn tf32_lies_between_single_precision_and_half() {
        let (clock, card) = (Clock::shipped().unwrap(), card("A100-40GB"));
        let shape = Shape::Gemm { batch: 1.0, m: 4096.0, n: 4096.0, k: 4096.0 };
        let of = |precision| Work::of(shape, Operands::of(precision));
        assert_eq!(clock.time(&of(Precision::Tf32), &card), None, "not measured");
        let tf32 = clock.assumed(&of(Precision::Tf32), &card).unwrap().time;
        assert!(tf32 < clock.time(&of(Precision::F32), &card).unwrap().time);
        assert!(tf32 > clock.time(&of(Precision::F16), &card).unwrap().time);
    }

    #[test]
    fn what_no_kind_is_near_to_has_no_time() {
        let (clock, card) = (Clock::shipped().unwrap(), card("A100-80GB"));
        let double = Operands::of(Precision::F64);
        let gemm = Shape::Gemm { batch: 1.0, m: 64.0, n: 64.0, k: 64.0 };
        for shape in [Shape::Other, gemm] {
            assert_eq!(clock.assumed(&Work::of(shape, double), &card), None, "{shape:?}");
        }
    }

    #[test]
    fn a_copy_from_the_host_takes_the_bus() {
        let (clock, card) = (Clock::shipped().unwrap(), card("A100-80GB"));
        let shape = Shape::HostCopy { bytes: 1e9 };
        let copy = clock.assumed(&Work::of(shape, Operands::of(Precision::F32)), &card).unwrap();
        // PCI Express 4.0 x 16.
        assert!((1e9 / 32e9..1e9 / 15e9).contains(&copy.low), "{copy:?}");
    }
}
