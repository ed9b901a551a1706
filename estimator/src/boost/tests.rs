use super::*;
use crate::evaluate::mean_absolute;

/// Numbers between 0 and 1 without pattern, the same each time.
fn numbers(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn sample(rows: usize) -> (Table, Vec<f64>) {
    let mut next = numbers(1);
    let mut table = Table::new(["step", "slope", "noise"]);
    let mut target = Vec::new();
    for _ in 0..rows {
        let row = [next(), next(), next()];
        table.push(&row).unwrap();
        target.push(if row[0] > 0.37 { 5.0 } else { 1.0 } + 2.0 * row[1]);
    }
    (table, target)
}

#[test]
fn a_known_function_is_learned() {
    let (table, target) = sample(2000);
    let ensemble = Ensemble::fit(&table, &target, &Settings::default()).unwrap();
    let mut next = numbers(9);
    let fresh: Vec<[f64; 3]> = (0..500).map(|_| [next(), next(), next()]).collect();
    let truth = |row: &[f64; 3]| if row[0] > 0.37 { 5.0 } else { 1.0 } + 2.0 * row[1];
    let error = mean_absolute(fresh.iter().map(|row| (ensemble.predict(row), truth(row))));
    assert!(error < 0.05, "{error}");
}

#[test]
fn the_pinball_loss_finds_the_quantile() {
    let mut next = numbers(4);
    let mut table = Table::new(["x"]);
    let mut target = Vec::new();
    for _ in 0..4000 {
        let x = next();
        table.push(&[x]).unwrap();
        target.push((1.0 + x) * next());
    }
    let settings = Settings { loss: Loss::Pinball(0.9), min_rows: 100, ..Settings::default() };
    let ensemble = Ensemble::fit(&table, &target, &settings).unwrap();
    let mut covered = 0;
    for _ in 0..4000 {
        let x = next();
        covered += u32::from((1.0 + x) * next() <= ensemble.predict(&[x]));
    }
    assert!((0.87..0.93).contains(&(f64::from(covered) / 4000.0)), "{covered}");
    assert!(ensemble.predict(&[0.95]) > ensemble.predict(&[0.05]) * 1.5, "it follows the spread");
}

#[test]
fn the_same_rows_give_the_same_trees() {
    let (table, target) = sample(500);
    let fit = || Ensemble::fit(&table, &target, &Settings::default()).unwrap();
    assert_eq!(fit(), fit());
}

#[test]
fn unknown_values_are_a_branch_of_their_own() {
    let mut table = Table::new(["x"]);
    let mut target = Vec::new();
    for n in 0..200 {
        table.push(&[if n % 2 == 0 { f64::NAN } else { f64::from(n) }]).unwrap();
        target.push(if n % 2 == 0 { 10.0 } else { 0.0 });
    }
    let ensemble = Ensemble::fit(&table, &target, &Settings::default()).unwrap();
    assert!(ensemble.predict(&[f64::NAN]) > 9.5 && ensemble.predict(&[3.0]) < 0.5);
    assert!(ensemble.predict(&[]) > 9.5, "a value that is missing is unknown");
}

#[test]
fn unusable_rows_and_settings_are_errors() {
    let (table, target) = sample(50);
    let error = |target: &[f64], settings: Settings| Ensemble::fit(&table, target, &settings).unwrap_err();
    assert!(matches!(error(&target[..3], Settings::default()), Error::Length { .. }));
    let mut broken = target.clone();
    broken[7] = f64::NAN;
    assert!(matches!(error(&broken, Settings::default()), Error::NotFinite { row: 7, .. }));
    let wrong = Settings { loss: Loss::Pinball(1.0), ..Settings::default() };
    assert!(matches!(error(&target, wrong), Error::Setting(_)));
    assert!(matches!(Table::new(["a"]).push(&[1.0, 2.0]), Err(Error::Width { .. })));
    assert!(matches!(Table::new(["a"]).push(&[f64::INFINITY]), Err(Error::NotFinite { .. })));
    let empty = Ensemble::fit(&Table::new(["a"]), &[], &Settings::default());
    assert_eq!(empty, Err(Error::TooFew { what: "rows", needed: 1, found: 0 }));
}

#[test]
fn a_target_without_spread_needs_no_tree() {
    let (table, _) = sample(50);
    let ensemble = Ensemble::fit(&table, &[3.5; 50], &Settings::default()).unwrap();
    assert_eq!((ensemble.trees(), ensemble.predict(&[0.1, 0.2, 0.3])), (0, 3.5));
}

#[test]
fn rounding_keeps_predictions_and_halves_the_file() {
    let (table, target) = sample(2000);
    let ensemble = Ensemble::fit(&table, &target, &Settings::default()).unwrap();
    let rounded = ensemble.clone().rounded();
    let error = |row: usize| (rounded.predict(table.row(row)) - ensemble.predict(table.row(row))).abs();
    let mut errors: Vec<f64> = (0..table.len()).map(error).collect();
    errors.sort_unstable_by(f64::total_cmp);
    assert!(errors[errors.len() * 95 / 100] < 0.01, "{}", errors[errors.len() * 95 / 100]);
    assert!(rounded.check(3).is_ok());
    let length = |one: &Ensemble| serde_json::to_string(one).unwrap().len();
    assert!(length(&rounded) * 10 < length(&ensemble) * 7, "{} of {}", length(&rounded), length(&ensemble));
    assert_eq!(rounded.clone().rounded(), rounded);
}
