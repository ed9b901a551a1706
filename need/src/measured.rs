//! Rates at which the bounds of estimators that were not fitted here held: they are stated as their confidence.
//!
//! The 39 programs of the thesis's traces and CARMA's, with peaks of 2024, and 30 of them that were measured again in 2026.
//! Of the two sites the lower rate is stated. No formula or constant was chosen with these peaks. A program
//! counts where the estimator gave a number.

use radrm_base::Permille;

/// GPUMemNet's figure as a bound: it held for 33 of 37 programs in 2024, for 29 of 30 in 2026.
pub(super) const GPUMEMNET: Permille = Permille(892);
/// Horus's figure as a bound: it held for 18 of 35 programs in 2024, for 28 of 28 in 2026.
pub(super) const HORUS: Permille = Permille(514);
/// The bound of a count of tensors (FakeTensor) by the line that ships, which was fitted to other programs of the first
/// site: it held for 25 of 32 programs in 2024, for 25 of 30 in 2026.
pub(super) const TENSORS: Permille = Permille(781);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use radrm_base::Bytes;

    use crate::{Estimator, Features, FileEstimate, Horus};

    use super::*;

    type Row = BTreeMap<String, String>;

    /// Rows of a file of measurements, which lies beside the project; `None`, reported, where it is missing.
    fn rows(name: &str) -> Option<Vec<Row>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(name);
        let Ok(text) = fs::read_to_string(&path) else {
            eprintln!("skipped: {} is missing", path.display());
            return None;
        };
        let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned));
        let head: Vec<String> = lines.next()?.collect();
        Some(lines.map(|line| head.iter().cloned().zip(line).collect()).collect())
    }

    /// Estimates of a program by name, and its peaks of 2024 and 2026, MiB.
    type Program = (BTreeMap<String, Bytes>, [Option<f64>; 2]);

    /// Each program once.
    fn programs() -> Option<Vec<Program>> {
        let mut later: BTreeMap<String, f64> = BTreeMap::new();
        for row in rows("workloads_a100/workloads.csv")?.iter().filter(|row| row["gpu_label"] != "gpu_b") {
            let name: Vec<&str> = row["workload"].split('_').take(3).collect();
            later.insert(name.join(" "), row["mem_peak_mib"].parse().ok()?);
        }
        let mut found = BTreeMap::new();
        for trace in ["thesis_60", "thesis_90", "carma_t1_60"] {
            for row in rows(&format!("traces/{trace}.csv"))? {
                let program = match &row["model"][..] {
                    "efficientnet_b0" => "efficientnet",
                    "mobilenet_v2" | "s_mobilenetv3" => "mobilenet",
                    other => other,
                };
                let name = format!("{program} {} bs{}", row["dataset"], row["batch"]);
                let estimates = ["horus", "faketensor", "gpumemnet"].into_iter().filter_map(|key| {
                    // What the traces have where an estimator gave no number.
                    let mib =
                        row[&format!("est_{key}_mib")].parse::<f64>().ok().filter(|mib| *mib < 40_000.0)?;
                    Some((key.to_owned(), Bytes((mib * 1_048_576.0) as u64)))
                });
                let peaks = [row["mem_mib"].parse().ok(), later.get(&name).copied()];
                let key = (
                    row["model"].clone(),
                    row["dataset"].clone(),
                    row["batch"].clone(),
                    row["n_gpus"].clone(),
                );
                found.entry(key).or_insert((estimates.collect(), peaks));
            }
        }
        Some(found.into_values().collect())
    }

    /// Of the bounds that an estimator gives alone, how many there are and how many hold, at each site.
    fn held(key: &str) -> Option<[(usize, usize); 2]> {
        let mut sites = [(0, 0); 2];
        for (estimates, peaks) in programs()? {
            let file: BTreeMap<String, Bytes> =
                estimates.into_iter().filter(|(name, _)| name == key).collect();
            let job = Features { file: Some(&file), ..Features::default() };
            let Some(need) = FileEstimate::default().memory(&job) else { continue };
            for (site, peak) in sites.iter_mut().zip(peaks) {
                let Some(peak) = peak else { continue };
                site.0 += 1;
                site.1 += usize::from(need.upper.0 as f64 / 1_048_576.0 >= peak);
            }
        }
        Some(sites)
    }

    #[test]
    fn confidences_are_the_rates_that_were_measured() {
        for (key, stated) in [("gpumemnet", GPUMEMNET), ("horus", HORUS), ("faketensor", TENSORS)] {
            let Some(sites) = held(key) else { return };
            println!("{key}: {sites:?}");
            assert!(sites.iter().all(|(all, _)| *all >= 25), "{key}: {sites:?}");
            let rates = sites.map(|(all, held)| held as f64 / all as f64);
            let least = rates[0].min(rates[1]);
            assert!((least - stated.fraction()).abs() < 0.0006, "{key}: {rates:?} beside {stated}");
        }
        let file = BTreeMap::from([("horus".to_owned(), Bytes(1 << 30))]);
        let job = Features { file: Some(&file), ..Features::default() };
        assert_eq!(FileEstimate::default().memory(&job).unwrap().confidence, Some(HORUS));
        let model = crate::ModelSummary { parameters: 1, ..Default::default() };
        let job = Features { summary: Some(&model), batch: Some(1), ..Features::default() };
        assert_eq!(Horus::default().memory(&job).unwrap().confidence, Some(HORUS));
    }
}
