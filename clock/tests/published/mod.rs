//! Measurements that others published, as samples. They lie beside the repository, under `../shared/data`; where they
//! are absent, each reader returns nothing and says so once.

mod collectives;
mod language;
mod neusight;
mod tables;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use radrm_clock::power::PowerCurve;
use radrm_clock::train::Sample;
use radrm_clock::{Card, Cards};

/// Folder of the measurements. Returns `None`, with a line on the error output, where it is absent.
pub fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/clock");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("SKIPPED: {} is absent", folder.display());
    None
}

/// Cards of the emulator's list, and those of the measurements.
pub fn cards() -> Cards {
    let listed =
        Cards::parse(include_str!("../../../emulator/machine/data/models.toml")).expect("models.toml");
    let measured = Cards::parse(include_str!("../../data/measured_cards.toml")).expect("measured_cards.toml");
    Cards { gpu: listed.gpu.into_iter().chain(measured.gpu).collect() }
}

/// Everything that may be learned from.
pub fn samples() -> Option<Vec<Sample>> {
    let folder = folder()?;
    let cards = cards();
    let mut samples = language::gemm(&folder, &cards);
    samples.extend(language::attention(&folder, &cards));
    samples.extend(language::vidur(&folder, &cards));
    samples.extend(language::layers(&folder, &cards));
    samples.extend(neusight::operations(&folder, &cards));
    samples.extend(neusight::convolutions(&folder, &cards));
    samples.extend(collectives::nccl(&folder, &cards));
    samples.extend(collectives::vidur(&folder, &cards));
    Some(samples)
}

/// Trainings at several power limits.
pub fn power() -> Option<Vec<PowerCurve>> {
    let folder = folder()?;
    let cards = cards();
    let mut curves: BTreeMap<String, PowerCurve> = BTreeMap::new();
    for (file, card) in [("v100", "V100-PCIe-32GB"), ("p100", "P100-PCIe-16GB")] {
        let card = card_of(&cards, card);
        for row in tables::read(&folder.join(format!("zeus/summary_power_{file}.csv"))) {
            let name = format!(
                "{file} {} {} {} {}",
                row.text("dataset"),
                row.text("network"),
                row.text("batch_size"),
                row.text("optimizer")
            );
            let point =
                [row.number("power_limit"), row.number("time_per_epoch"), row.number("average_power")];
            let curve =
                curves.entry(name).or_insert_with(|| PowerCurve { card: card.clone(), points: Vec::new() });
            curve.points.push(point);
        }
    }
    Some(curves.into_values().collect())
}

fn card_of(cards: &Cards, name: &str) -> Card {
    cards.find(name).unwrap_or_else(|| panic!("no card {name}")).clone()
}

/// Text of a file, unpacked if its name ends in `.gz`.
fn text(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    let read = if path.extension().is_some_and(|end| end == "gz") {
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text)
    } else {
        bytes.as_slice().read_to_string(&mut text)
    };
    read.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text
}
