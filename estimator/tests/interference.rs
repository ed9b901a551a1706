//! Interference estimators against published measurements of programs whose family they did not see.

use crate::{sharing, sites};
use radrm_estimator::interference::Constants;

#[test]
fn speeds_of_unseen_families_are_predicted() {
    let Some(pairs) = sharing::a100() else { return };
    assert_eq!(pairs.len(), 163);
    let found = sharing::evaluate(&pairs);
    println!("{found}");
    assert!(found.error <= 0.046 && found.error < 0.4 * found.naive, "{found:?}");
    assert!(found.error < sharing::error_of(&pairs, 2), "exponent 6 is better than 2");
    assert!((0.93..=0.98).contains(&found.coverage.0), "{found:?}");
    assert!((0.93..=0.98).contains(&found.coverage.1), "{found:?}");
    assert!(found.learned < found.error, "{found:?}");
    let [regret, formula] = found.regret;
    assert!(regret <= 0.04 && regret < formula && formula < found.random_regret, "{found:?}");
    let errors: Vec<f64> = found.after.iter().map(|(_, error)| *error).collect();
    assert!(errors.windows(2).all(|pair| pair[1] < pair[0]), "{found:?}");
    assert!(errors[2] <= 0.058, "{found:?}");
}

#[test]
fn speeds_of_a_held_out_family_have_no_part_in_its_predictions() {
    let Some(pairs) = sharing::a100() else { return };
    let before = sharing::held_out(&pairs.iter().collect::<Vec<_>>(), sharing::learned);
    let family = "vgg16";
    let mut changed = pairs.clone();
    for pair in changed.iter_mut().filter(|pair| pair.names.iter().any(|name| name.starts_with(family))) {
        pair.speeds = [0.1, 0.9];
    }
    let after = sharing::held_out(&changed.iter().collect::<Vec<_>>(), sharing::learned);
    let held = before.iter().zip(&after).filter(|((_, held, _), _)| held == family);
    assert!(held.clone().count() > 5);
    held.for_each(|((pair, _, before), (_, _, after))| assert_eq!(before, after, "{pair:?}"));
    let others = before.iter().zip(&after).filter(|((_, held, _), _)| held != family);
    assert!(others.clone().any(|((_, _, before), (_, _, after))| before != after));
}

#[test]
fn the_shipped_constants_are_those_that_fit() {
    let Some(pairs) = sharing::a100() else { return };
    let (fitted, error) = sharing::in_sample(&pairs, None);
    let (_, shipped) = sharing::in_sample(&pairs, Some(Constants::A100_40GB));
    println!("fitted {fitted:?}: error {error:.4}, shipped: {shipped:.4}");
    assert!((shipped - error).abs() < 0.0005, "{fitted:?}: {error} {shipped}");
}

#[test]
fn three_jobs_are_composed_from_their_pairs() {
    let Some(found) = sites::kace() else { return };
    let found = found.unwrap();
    println!("{found}");
    let (triples, added, _) = found.triples;
    assert!(triples > 300 && added <= 0.065, "{found:?}");
    let [(_, mean), (_, boosting), (_, linear), (_, forest)] = found.error;
    assert!(boosting < linear && linear < mean && forest < boosting, "{found:?}");
    assert!(forest <= 0.167, "{found:?}");
    // Three predictors, and rules that state an order alone: those of KACE's authors, any partner, and the best one.
    let predictors = found.summed.iter().filter(|baseline| baseline.error.is_some()).count();
    assert_eq!((predictors, found.summed.len()), (3, 8), "{found:?}");
    let held = found.summed.iter().find(|rule| rule.name.contains("MEMCAP")).expect("the rule");
    assert!((held.part - 0.793).abs() < 0.0006, "published: 79.3 %; {held:?}");
}

#[test]
fn observed_pairs_teach_what_a_new_program_does() {
    for gpu in ["k80", "p100", "v100"] {
        let Some(found) = sites::gavel(gpu) else { return };
        println!("{gpu}: {found:.3?}");
        for [mean, none, one, five] in [found.family, found.lone_program] {
            assert!(none < mean && one < none && five < one, "{gpu}: {found:?}");
        }
        if gpu == "v100" {
            assert!(found.family[2] <= 0.144 && found.family[3] <= 0.125, "{found:?}");
        }
    }
}

#[test]
fn a_run_on_one_gpu_says_what_another_one_does() {
    for (from, to, bandwidth, own) in [("p100", "v100", 0.47, 0.16), ("v100", "p100", 0.28, 0.16)] {
        let Some(found) = sites::across(from, to) else { return };
        println!("{from} to {to}: error {:.3?}, in their intervals {:.3?}", found.error, found.coverage);
        assert!(found.error[0] <= bandwidth && found.error[1] <= own, "{:?}", found.error);
        assert!(found.coverage.iter().all(|part| *part >= 0.9), "{:?}", found.coverage);
    }
}
