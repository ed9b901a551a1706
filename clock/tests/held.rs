//! Cards that are left out, and the shipped file against its training.

use radrm_clock::train::{self, Sample};
use radrm_clock::{Clock, Kind, Power};

use crate::published;

fn samples() -> Option<Vec<Sample>> {
    published::samples()
}

#[test]
fn attention_of_a_card_that_was_left_out_is_predicted() {
    let Some(samples) = samples() else { return };
    let (own, other) = train::evaluate(Kind::AttentionPrefill, &samples).expect("scores");
    assert_eq!(other.len(), 3);
    for (own, other) in own.iter().zip(&other) {
        assert!(own.error(0.5) < 0.08, "{}: {}", own.card, own.error(0.5));
        assert!(other.error(0.5) < 0.25, "{}: {}", other.card, other.error(0.5));
        assert!(own.coverage() >= 0.88, "{}: {}", own.card, own.coverage());
        assert!(other.coverage() >= 0.8, "{}: {}", other.card, other.coverage());
    }
}

#[test]
fn the_shipped_file_is_what_its_training_gives() {
    let Some(samples) = samples() else { return };
    let shipped = Clock::shipped().expect("the shipped file");
    for kind in [Kind::Softmax, Kind::Norm, Kind::AttentionDecode, Kind::Collective] {
        let learned = train::learn(kind, &samples).expect("trees");
        let kept = shipped.kinds().iter().find(|one| one.kind == kind).expect("the kind");
        assert!(&learned == kept, "{kind:?}: run cargo xtask clock train");
    }
}

#[test]
fn a_power_limit_is_priced_on_a_card_that_was_left_out() {
    let Some(curves) = published::power() else { return };
    let (held, learn): (Vec<_>, Vec<_>) =
        curves.into_iter().partition(|curve| curve.card.id == "V100-PCIe-32GB");
    let power = Power::learn(&learn).expect("power");
    let bound: Vec<_> = held.iter().filter(|curve| curve.is_gpu_bound()).collect();
    assert!(bound.len() > 20, "{} programs", bound.len());
    let mut errors: Vec<f64> = bound.iter().flat_map(|curve| power.errors(curve)).collect();
    errors.sort_unstable_by(f64::total_cmp);
    assert!(errors[errors.len() / 2] < 0.06, "{}", errors[errors.len() / 2]);
}
