//! The options of a dry run: as written, and what they mean together.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use radrm_analyzer::Training;
use radrm_emulator_machine::{GpuSpec, Models};
use thiserror::Error;

use super::files::Writes;
use super::ranks::{Ranks, RanksError, USUAL_NODE};
use crate::training::{TrainingError, TrainingFlags};

/// The machine of a dry run that names none: the largest memory that one GPU model of its kind has, so that the
/// program's need is seen and not a card's limit.
const USUAL_MACHINE: &str = "1xH200";
/// Batches that are tried if the caller names no range.
const USUAL_BATCHES: RangeInclusive<u64> = 1..=65536;

/// The options as they stand on the command line.
#[derive(clap::Args, Debug, Default)]
#[group(id = "dry_run_options")]
#[command(next_help_heading = "Memory need without a GPU")]
pub struct Flags {
    /// Run PROGRAM on an emulated GPU with stand-ins for CUDA's libraries; report its peak and the cards it fits on
    ///
    /// The GPU is 1xH200 unless --emulate names another.
    #[arg(long)]
    dry_run: bool,
    /// Stop after N optimizer steps
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Stop PROGRAM after so many seconds, and report what was seen until then
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// End each epoch of a PyTorch DataLoader after three optimizer steps, so that what follows an epoch is reached
    #[arg(long)]
    short_epochs: bool,
    /// Random content for the usual data sets of torchvision
    #[arg(long)]
    fake_data: bool,
    /// Fill models that are made on the host with their values, which takes their time and memory
    #[arg(long)]
    host_values: bool,
    /// Percentage of elements that masks and other data-dependent operations keep [default: 50]
    #[arg(long, value_name = "PERCENT")]
    fill: Option<u32>,
    /// Run PROGRAM on each of these cards (T4,A10 or all) and report on which it fits
    #[arg(long, value_name = "CARDS", conflicts_with_all = ["find_batch", "emulate", "machine"])]
    fits: Option<String>,
    /// Try values of PROGRAM's option ARG and report the largest that fits
    #[arg(long, value_name = "ARG=FROM..TO", allow_hyphen_values = true)]
    find_batch: Option<String>,
    /// Run only these ranks of a job with N ranks (0,63 or 0-7), each on an emulated GPU; model the others
    ///
    /// PROGRAM is the script, without torchrun. The emulated machine is a node; it is 8xH200 unless --emulate names another.
    #[arg(
        long,
        value_name = "LIST",
        requires = "world",
        conflicts_with = "fits",
        allow_hyphen_values = true
    )]
    ranks: Option<String>,
    /// Number of ranks of the job, for --ranks
    #[arg(long, value_name = "N", requires = "ranks")]
    world: Option<u32>,
    /// Copy the files that PROGRAM wrote to DIR; otherwise they are thrown away
    #[arg(long, value_name = "DIR", conflicts_with_all = ["fits", "find_batch", "write_files"])]
    keep_files: Option<PathBuf>,
    /// Let PROGRAM write its files as in any other run; with FOLDERS (a list with commas) only those below them
    #[arg(long, value_name = "FOLDERS", num_args = 0..=1, require_equals = true)]
    write_files: Option<Option<String>>,
    #[command(flatten)]
    training: TrainingFlags,
}

/// The option of the program whose value is varied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FindBatch {
    /// The option, for instance `--batch-size`.
    pub option: String,
    /// Values that are tried.
    pub range: RangeInclusive<u64>,
    /// True if the range's end was named, and is not just where the search gives up.
    pub has_end: bool,
}

/// A dry run that was asked for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DryRun {
    /// Optimizer steps after which the program is stopped.
    pub steps: Option<u64>,
    /// Seconds after which the program is stopped.
    pub timeout: Option<u64>,
    /// True if an epoch ends after a few steps.
    pub short_epochs: bool,
    /// True if common data sets have random content.
    pub fake_data: bool,
    /// True if models that are made on the host get their values.
    pub host_values: bool,
    /// Percentage of elements that data-dependent operations keep.
    pub fill: u32,
    /// Search for the largest batch, if that is to be found.
    pub find_batch: Option<FindBatch>,
    /// Models of cards on which the program is tried; none: it runs once.
    pub fits: Vec<String>,
    /// The ranks of a large job that run.
    pub ranks: Option<Ranks>,
    /// Treatment of the files that it writes.
    pub writes: Writes,
    /// The whole training, of which the report has predicted figures.
    pub training: Option<Training>,
}

impl DryRun {
    /// The machine on which it runs where none is named.
    #[must_use]
    pub fn usual_machine(&self) -> &'static str {
        if self.ranks.is_some() { USUAL_NODE } else { USUAL_MACHINE }
    }
}

/// Fault of the options of a dry run, as one sentence.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum FlagsError {
    /// The option means nothing without a dry run.
    #[error("{0} works only with --dry-run")]
    WithoutDryRun(&'static str),
    /// The program would not even begin.
    #[error("--steps 0 would stop before anything happens")]
    NoSteps,
    /// More than all elements.
    #[error("--fill {0} is not between 0 and 100")]
    Fill(u32),
    /// A card that is to be tried is not a model.
    #[error("--fits: there is no model `{0}`; `radrm machines` lists them")]
    Card(String),
    /// The option to vary, or its range, is not understood.
    #[error("--find-batch {0} is not of the form ARG or ARG=FROM..TO with FROM from 1 to TO")]
    FindBatch(String),
    /// The ranks cannot be.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// Prices are not taken.
    #[error(transparent)]
    Training(#[from] TrainingError),
}

/// Half of the elements: neither all nor nothing, and said in the report.
pub const USUAL_FILL: u32 = 50;

impl Flags {
    /// Dry run that the options mean together; `None` if no dry run was asked for.
    ///
    /// # Errors
    /// [`FlagsError`].
    pub fn resolve(self) -> Result<Option<DryRun>, FlagsError> {
        if !self.dry_run {
            for (given, name) in [
                (self.steps.is_some(), "--steps"),
                (self.timeout.is_some(), "--timeout"),
                (self.short_epochs, "--short-epochs"),
                (self.fake_data, "--fake-data"),
                (self.host_values, "--host-values"),
                (self.fill.is_some(), "--fill"),
                (self.find_batch.is_some(), "--find-batch"),
                (self.fits.is_some(), "--fits"),
                (self.ranks.is_some(), "--ranks"),
                (self.keep_files.is_some(), "--keep-files"),
                (self.write_files.is_some(), "--write-files"),
            ] {
                if given {
                    return Err(FlagsError::WithoutDryRun(name));
                }
            }
            return self.training.given().map_or(Ok(None), |name| Err(FlagsError::WithoutDryRun(name)));
        }
        if self.steps == Some(0) {
            return Err(FlagsError::NoSteps);
        }
        let fill = self.fill.unwrap_or(USUAL_FILL);
        if fill > 100 {
            return Err(FlagsError::Fill(fill));
        }
        let find_batch = self.find_batch.as_deref().map(parse_batch).transpose()?;
        let fits = self.fits.as_deref().map(parse_cards).transpose()?.unwrap_or_default();
        let ranks = self.ranks.as_deref().zip(self.world);
        let ranks = ranks.map(|(list, world)| Ranks::parse(list, world)).transpose()?;
        let training = self.training.resolve()?;
        let Self {
            steps, timeout, short_epochs, fake_data, host_values, keep_files: keep, write_files, ..
        } = self;
        let all_real = matches!(write_files, Some(None));
        let real = write_files.flatten().unwrap_or_default();
        let real = real.split(',').filter(|folder| !folder.is_empty()).map(PathBuf::from).collect();
        let writes = Writes { all_real, real, keep };
        Ok(Some(DryRun {
            steps,
            timeout,
            short_epochs,
            fake_data,
            host_values,
            fill,
            find_batch,
            fits,
            ranks,
            writes,
            training,
        }))
    }
}

/// Models by their names or aliases, each once, in the order given; `all` is the whole table, by memory.
fn parse_cards(text: &str) -> Result<Vec<String>, FlagsError> {
    let mut models = Models::known().map(|models| models.gpu).unwrap_or_default();
    models.sort_by(|a, b| (a.memory_mib, &a.id).cmp(&(b.memory_mib, &b.id)));
    if text == "all" {
        return Ok(models.into_iter().map(|model| model.id).collect());
    }
    let mut cards = Vec::new();
    for name in text.split(',').map(str::trim) {
        let same = |other: &str| other.eq_ignore_ascii_case(name);
        let is_named = |model: &&GpuSpec| same(&model.id) || model.aliases.iter().any(|alias| same(alias));
        let model = models.iter().find(is_named).ok_or_else(|| FlagsError::Card(name.to_owned()))?;
        if !cards.contains(&model.id) {
            cards.push(model.id.clone());
        }
    }
    Ok(cards)
}

fn parse_batch(text: &str) -> Result<FindBatch, FlagsError> {
    let wrong = || FlagsError::FindBatch(text.to_owned());
    let (option, from, to) = match text.split_once('=') {
        None => (text, "", ""),
        Some((option, range)) => {
            let (from, to) = range.split_once("..").ok_or_else(wrong)?;
            (option, from, to)
        }
    };
    let number = |word: &str, otherwise: u64| match word {
        "" => Ok(otherwise),
        word => word.parse().map_err(|_| wrong()),
    };
    let from = number(from, *USUAL_BATCHES.start())?;
    // A range that begins beyond the usual end has room to grow as well.
    let range = from..=number(to, from.saturating_mul(*USUAL_BATCHES.end()))?;
    if option.is_empty() || range.is_empty() || *range.start() == 0 {
        return Err(wrong());
    }
    Ok(FindBatch { option: option.to_owned(), range, has_end: !to.is_empty() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> Flags {
        Flags { dry_run: true, ..Flags::default() }
    }

    #[test]
    fn options_of_a_dry_run_need_one() {
        assert_eq!(Flags::default().resolve(), Ok(None));
        let alone = Flags { steps: Some(3), ..Flags::default() }.resolve();
        assert_eq!(alone.unwrap_err().to_string(), "--steps works only with --dry-run");
        let usual = DryRun { fill: USUAL_FILL, ..DryRun::default() };
        assert_eq!(flags().resolve(), Ok(Some(usual)));
    }

    #[test]
    fn senseless_values_are_refused_in_one_sentence() {
        for wrong in [
            Flags { steps: Some(0), ..flags() },
            Flags { fill: Some(101), ..flags() },
            Flags { fits: Some("t4,NOSUCH".into()), ..flags() },
            Flags { fits: Some(String::new()), ..flags() },
            Flags { find_batch: Some("=1..2".into()), ..flags() },
            Flags { find_batch: Some("--b=9..2".into()), ..flags() },
            Flags { find_batch: Some("--b=0..2".into()), ..flags() },
            Flags { find_batch: Some("--b=x".into()), ..flags() },
        ] {
            let shown = format!("{wrong:?}");
            let sentence = wrong.resolve().expect_err(&shown).to_string();
            assert_eq!(sentence.lines().count(), 1, "{sentence}");
        }
    }

    #[test]
    fn cards_are_models_by_name_or_alias() {
        let cards = |text: &str| parse_cards(text).map_err(|error| error.to_string());
        assert_eq!(cards("T4, A10,T4"), Ok(vec!["T4".to_owned(), "A10".to_owned()]));
        let all = cards("all").unwrap();
        assert!(all.len() > 8 && all.contains(&"H200".to_owned()), "{all:?}");
        assert!(cards("T4,X9").unwrap_err().contains("no model `X9`"));
    }

    #[test]
    fn a_range_of_batches_may_be_open() {
        let parsed = |text: &str| parse_batch(text).map(|found| (found.option, found.range, found.has_end));
        assert_eq!(parsed("--batch-size"), Ok(("--batch-size".to_owned(), USUAL_BATCHES, false)));
        assert_eq!(parsed("-b=8..64"), Ok(("-b".to_owned(), 8..=64, true)));
        assert_eq!(parsed("bs=..64"), Ok(("bs".to_owned(), 1..=64, true)));
        assert_eq!(parsed("bs=3.."), Ok(("bs".to_owned(), 3..=3 * 65536, false)));
    }
}
