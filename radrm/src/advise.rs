//! `radrm advise`: which recorded programs share a GPU well, which card costs least for each, and what limits each.

mod activity;
mod host;
mod share;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;
use radrm_analyzer::Summary;
use radrm_base::HostUse;
use radrm_collector::dataset::{Dataset, Filter, Origin, Row, program_name};
use radrm_emulator_machine::{GpuSpec, Models};
use radrm_launcher::prices::PriceFlags;
use radrm_scheduler_core::across::{Margins, Rate, Throughput, rate};
use radrm_scheduler_core::interference::{Constants, Learner, Resident, Speed};
use radrm_scheduler_core::{Activity, Permille, Program};
use serde::Serialize;
use serde_json::json;

use crate::error::{Failure, UsageError};
use crate::show::dataset::{command_line, in_file, path};
use crate::show::report;
use crate::{print, print_json};

/// Programs that are compared when no runs are named.
const MAX_PROGRAMS: usize = 12;
/// The newest rows among which they are searched.
const MAX_ROWS: u32 = 2000;
/// Companies of jobs that predictions are learned from.
const MAX_COMPANIES: u32 = 512;

/// Options of `radrm advise`.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// Runs, by their numbers in `radrm dataset list`; without any the newest run of each program, 12 at most
    #[arg(value_name = "RUN")]
    runs: Vec<i64>,
    /// Another dataset than the user's, such as the daemon's
    #[arg(long, value_name = "FILE")]
    dataset: Option<PathBuf>,
    #[command(flatten)]
    prices: PriceFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A program, by one of its runs.
struct Compared {
    row: Row,
    name: String,
    /// Activity alone on a GPU, and where it is from.
    activity: Option<(Activity, activity::Source)>,
    /// Host use of the program, where that was measured.
    host: Option<HostUse>,
    limit: String,
}

/// A figure with its 95 % interval.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figure {
    value: f64,
    low: f64,
    high: f64,
}

impl From<Speed> for Figure {
    fn from(of: Speed) -> Self {
        Self { value: of.value, low: of.low, high: of.high }
    }
}

/// Two programs on one GPU.
#[derive(Debug, Serialize)]
struct Pair {
    runs: [i64; 2],
    /// With what they do to each other on the host.
    speeds: [Figure; 2],
    /// The speeds that the host alone would leave them, where that is known.
    host_speeds: Option<[f64; 2]>,
    /// Factor by which both together would do more with one loader, where they load the same data and the host
    /// limits them.
    share_gain: Option<f64>,
    /// Both peaks together.
    bytes: Option<u64>,
    /// True if both fit, where the GPU's memory is known.
    fits: Option<bool>,
}

/// Two programs that load the same data and that the host limits.
#[derive(Debug, PartialEq, Serialize)]
struct Shared {
    runs: [i64; 2],
    /// Factor by which both together would do more than now with one loader.
    gain: f64,
}

/// A program on a card.
#[derive(Debug, Serialize)]
struct Card {
    run: i64,
    card: String,
    /// Hours of one run.
    hours: Option<Figure>,
    /// Cost of a run there.
    cost: Option<Figure>,
    /// Reason that there is no cost, or what the cost rests on.
    why: String,
}

/// Prints the advice.
///
/// # Errors
/// One sentence: the dataset cannot be read, has no such run, or a price is wrong.
pub(crate) fn run(flags: &Flags) -> Result<(), Failure> {
    let models = Models::known()?;
    let prices = flags.prices.resolve().map_err(UsageError::Price)?;
    let prices: Vec<_> =
        prices.per_hour.iter().filter_map(|(card, price)| Some((models.find(card)?, *price))).collect();
    let path = path(flags.dataset.clone())?;
    let dataset = Dataset::open_existing(&path).map_err(|error| in_file(&path, error))?;
    let rows = dataset
        .rows(&Filter { limit: flags.runs.is_empty().then_some(MAX_ROWS), ..Filter::default() })
        .map_err(|error| in_file(&path, error))?;
    let chosen = chosen(&rows, &flags.runs)?;
    let all: Vec<Compared> = chosen.into_iter().map(|row| compared(row, &dataset)).collect();
    let learners = learners(&dataset).map_err(|error| in_file(&path, error))?;
    let pairs = pairs(&all, &learners, &models, host::cores());
    let shared = shared(&all, host::cores());
    let cards: Vec<Card> =
        all.iter().flat_map(|of| prices.iter().map(|priced| card(of, priced, &rows, &models))).collect();
    if flags.json {
        let programs: Vec<_> = all.iter().map(Compared::as_json).collect();
        return print_json(
            &json!({ "programs": programs, "pairs": pairs, "shared": shared, "cards": cards }),
        );
    }
    if all.is_empty() {
        return print("no run of a GPU program was recorded yet\n");
    }
    print(&text::of(&all, &pairs, &shared, &cards))
}

/// The runs that are named, or the newest of each program; dry runs compute nothing.
fn chosen(rows: &[Row], named: &[i64]) -> Result<Vec<Row>, Failure> {
    if named.is_empty() {
        let mut seen = BTreeSet::new();
        let newest = rows.iter().filter(|row| row.origin != Origin::DryRun && seen.insert(program(row)));
        return Ok(newest.take(MAX_PROGRAMS).cloned().collect());
    }
    let find = |id: &i64| {
        let row = rows.iter().find(|row| row.id == *id).cloned();
        row.ok_or(Failure::NoRun(*id))
    };
    named.iter().map(find).collect()
}

/// The program of a run, as those that share GPUs are named; runs without a key are programs of their own.
fn program(row: &Row) -> String {
    match &row.program_key {
        Some(key) => program_name(key, row.batch),
        None => format!("run {}", row.id),
    }
}

fn compared(row: Row, dataset: &Dataset) -> Compared {
    let summary = row.profile_path.as_ref().map(|path| {
        let profile = report::open(std::path::Path::new(path));
        profile.map(|profile| Summary::from_profile(&profile)).map_err(|_| path.clone())
    });
    let activity = activity::of(&row, dataset, summary.as_ref().and_then(|found| found.as_ref().ok()));
    let limit = match summary {
        Some(Ok(summary)) => summary.limits.sentence,
        Some(Err(path)) => format!("n/a: the profile {path} cannot be read"),
        None => "n/a: the run has no profile".to_owned(),
    };
    let host = row.past_run().and_then(|run| run.host);
    Compared { name: program(&row), row, activity, host, limit }
}

impl Compared {
    fn resident(&self) -> Option<Resident> {
        Some(Resident { program: Some(Program::named(&self.name)), activity: self.activity?.0 })
    }

    fn as_json(&self) -> serde_json::Value {
        json!({
            "run": self.row.id, "command": command_line(&self.row), "batch": self.row.batch,
            "gpu_model": self.row.gpu_model, "emulated": self.row.emulated.is_some(),
            "activity": self.activity.map(|found| found.0), "activity_source": self.activity.map(|found| found.1), "host": self.host, "footprint_bytes": self.row.footprint_bytes, "limit": self.limit,
        })
    }
}

/// Learners of slowdowns by GPU model, and whether such GPUs are emulated: what jobs do to each other on these says nothing of real ones.
type Learners = BTreeMap<(String, bool), Learner>;

fn learners(dataset: &Dataset) -> Result<Learners, radrm_collector::dataset::DatasetError> {
    let mut all = Learners::new();
    for row in dataset.sharing(MAX_COMPANIES)? {
        let resident = |job: &radrm_collector::dataset::SharedJob| Resident {
            program: Some(Program::named(&job.program)),
            activity: Activity {
                smact: Permille(job.smact_permille),
                smocc: Permille(job.smocc_permille),
                drama: Permille(job.drama_permille),
            },
        };
        let jobs: Vec<Resident> = row.jobs.iter().map(resident).collect();
        let speeds: Vec<f64> = row.jobs.iter().filter_map(|job| job.speed()).collect();
        all.entry((row.gpu_model, row.emulated.is_some()))
            .or_insert_with(|| Learner::new(Constants::A100_40GB))
            .observe(&jobs, &speeds);
    }
    all.values_mut().for_each(Learner::refit);
    Ok(all)
}

/// Pairs of programs that ran on one model of GPU, those that get most done first.
fn pairs(all: &[Compared], learners: &Learners, models: &Models, cores: usize) -> Vec<Pair> {
    let shipped = Learner::new(Constants::A100_40GB);
    let mut pairs = Vec::new();
    for (at, one) in all.iter().enumerate() {
        for other in &all[at..] {
            let (Some(a), Some(b)) = (one.resident(), other.resident()) else { continue };
            let is_emulated = one.row.emulated.is_some();
            if one.row.gpu_model != other.row.gpu_model || is_emulated != other.row.emulated.is_some() {
                continue;
            }
            let gpu = one.row.gpu_model.as_deref().unwrap_or_default();
            let learned = learners.get(&(gpu.to_owned(), is_emulated));
            let speeds = learned.unwrap_or(&shipped).predictor().speeds(&[a, b]);
            let bytes = one.row.footprint_bytes.zip(other.row.footprint_bytes).map(|(a, b)| a + b);
            let memory = models.named(gpu).map(|model| model.memory_mib << 20);
            let host = host::speeds(one.host, other.host, cores);
            let [slow_one, slow_other] = host.unwrap_or([1.0; 2]);
            pairs.push(Pair {
                runs: [one.row.id, other.row.id],
                speeds: [
                    Figure::from(speeds[0]).slowed(slow_one),
                    Figure::from(speeds[1]).slowed(slow_other),
                ],
                host_speeds: host,
                share_gain: share_gain(one, other, cores),
                bytes,
                fits: bytes.zip(memory).map(|(bytes, memory)| bytes <= memory),
            });
        }
    }
    let gets_done = |pair: &Pair| pair.speeds[0].value + pair.speeds[1].value;
    // What does not fit comes last.
    pairs.sort_by(|a, b| {
        (a.fits == Some(false)).cmp(&(b.fits == Some(false))).then(gets_done(b).total_cmp(&gets_done(a)))
    });
    pairs
}

/// Gain of two programs by one loader for both. What they do to the GPU does not matter: the host decides.
fn share_gain(one: &Compared, other: &Compared, cores: usize) -> Option<f64> {
    let now = host::speeds(one.host, other.host, cores)?;
    let is_same = one.row.gpu_model == other.row.gpu_model && share::load_the_same(&one.row, &other.row);
    if is_same { share::gain(one.host?, other.host?, now, cores) } else { None }
}

/// Programs that would gain by it, also where no SM activity was measured.
fn shared(all: &[Compared], cores: usize) -> Vec<Shared> {
    let pairs = all.iter().enumerate().flat_map(|(at, one)| all[at..].iter().map(move |other| (one, other)));
    let of = |(one, other): (&Compared, &Compared)| {
        let gain = share_gain(one, other, cores)?;
        Some(Shared { runs: [one.row.id, other.row.id], gain })
    };
    pairs.filter_map(of).collect()
}

/// A program on a card: its launch rate there from its bandwidth, or from its own runs on both.
fn card(of: &Compared, (card, cost): &(&GpuSpec, f64), rows: &[Row], models: &Models) -> Card {
    let row = &of.row;
    let mut advice = Card { run: row.id, card: card.id.clone(), hours: None, cost: None, why: String::new() };
    let lacks = |advice: Card, why: &str| Card { why: why.to_owned(), ..advice };
    if row.footprint_bytes.is_some_and(|bytes| bytes > card.memory_mib << 20) {
        return lacks(advice, "does not fit into its memory");
    }
    let gpu = row.gpu_model.as_deref().and_then(|name| models.named(name));
    let Some(gpu) = gpu else { return lacks(advice, "the bandwidth of the GPU that it ran on is unknown") };
    let runs_on = |name: &str| -> Vec<Throughput> {
        let same =
            |other: &&Row| other.gpu_model.as_deref() == Some(name) && other.program_key == row.program_key;
        let throughput = |other: &Row| {
            let launches = other.launches? as f64;
            Some(Throughput { batch: other.batch, rate: launches / (other.run_time_ns as f64 / 1e9) })
        };
        rows.iter().filter(same).filter(|other| other.complete).filter_map(throughput).collect()
    };
    // The run itself is the first of its batch size.
    let mut here = runs_on(&gpu.name);
    let own = row.launches.map(|launches| launches as f64 / (row.run_time_ns as f64 / 1e9));
    here.splice(0..0, own.map(|rate| Throughput { batch: row.batch, rate }));
    let there = if card.name == gpu.name { here.clone() } else { runs_on(&card.name) };
    let ratio = card.bandwidth_gbs / gpu.bandwidth_gbs;
    let estimate = rate(row.batch, &here, &there, ratio, &Margins::default());
    let (Some(estimate), Some(own)) = (estimate, own) else {
        return lacks(advice, "the run launched no kernels");
    };
    let hours = row.run_time_ns as f64 / 3.6e12;
    let longer = |by: f64| hours * own / by;
    let Rate { value, low, high } = estimate;
    let hours = Figure { value: longer(value), low: longer(high), high: longer(low) };
    advice.why = match (card.name == gpu.name, there.is_empty()) {
        (true, _) => "it ran there",
        (_, true) => "by the ratio of the memory bandwidths",
        (_, false) => "by its own runs on both",
    }
    .to_owned();
    if card.name == gpu.name {
        advice.hours = Some(Figure { value: longer(own), low: longer(own), high: longer(own) });
    } else {
        advice.hours = Some(hours);
    }
    advice.cost = advice.hours.map(|hours| Figure {
        value: hours.value * cost,
        low: hours.low * cost,
        high: hours.high * cost,
    });
    advice
}

#[cfg(test)]
mod tests {
    use radrm_base::Bytes;

    use super::*;

    fn row(id: i64, command: &str, batch: u32, gpu: &str, smact: u32, launches: u64) -> Row {
        let words = [command.to_owned(), format!("--bs={batch}")];
        Row {
            id,
            gpu_model: Some(gpu.to_owned()),
            smact_permille: Some(smact),
            drama_permille: Some(smact / 2),
            footprint_bytes: Some(10 << 30),
            run_time_ns: 100_000_000_000,
            launches: Some(launches),
            complete: true,
            batch: Some(batch),
            ..Row::of_command(&words, std::path::Path::new("/"), 1)
        }
    }

    fn of(row: &Row) -> Compared {
        let smact = Permille(row.smact_permille.unwrap());
        let activity = Activity { smact, drama: Permille(smact.0 / 2), ..Activity::default() };
        let host = row.past_run().and_then(|run| run.host);
        Compared {
            name: program(row),
            row: row.clone(),
            activity: Some((activity, activity::Source::Measured)),
            host,
            limit: String::new(),
        }
    }

    #[test]
    fn light_programs_come_first_and_what_does_not_fit_last() {
        let models = Models::known().unwrap();
        let gpu = &models.gpu.iter().find(|model| model.id == "A100-40GB").unwrap().name;
        let mut rows = [row(1, "a", 8, gpu, 900, 1), row(2, "b", 8, gpu, 100, 1), row(3, "c", 8, gpu, 50, 1)];
        rows[2].footprint_bytes = Some(39 << 30);
        let all: Vec<Compared> = rows.iter().map(of).collect();
        let pairs = pairs(&all, &BTreeMap::new(), &models, 4);
        assert_eq!(pairs.len(), 6, "each with itself, too");
        assert_eq!(pairs[0].runs, [2, 2]);
        let misfits: Vec<bool> = pairs.iter().map(|pair| pair.fits == Some(false)).collect();
        assert_eq!(misfits, [false, false, false, true, true, true]);
        let speed = pairs[0].speeds[0];
        assert!(speed.low < speed.value && speed.value <= speed.high);
    }

    #[test]
    fn what_was_learned_on_emulated_gpus_says_nothing_of_real_ones() {
        let models = Models::known().unwrap();
        let gpu = &models.gpu.iter().find(|model| model.id == "A100-40GB").unwrap().name;
        let real = [row(1, "a", 8, gpu, 500, 1), row(2, "b", 8, gpu, 600, 1)];
        let emulated = real.clone().map(|of| Row { emulated: Some("1xA100-40GB".into()), ..of });
        let all = |rows: &[Row]| rows.iter().map(of).collect::<Vec<_>>();
        let mut learner = Learner::new(Constants::A100_40GB);
        let residents = [0, 1].map(|at| all(&real)[at].resident().unwrap());
        (0..8).for_each(|_| learner.observe(&residents, &[0.3, 0.3]));
        learner.refit();
        let learners = Learners::from([((gpu.clone(), true), learner)]);
        let value = |rows: &[Row], learners: &Learners| {
            let pairs = pairs(&all(rows), learners, &models, 4);
            pairs.iter().find(|pair| pair.runs == [1, 2]).map(|pair| pair.speeds[0].value)
        };
        assert_eq!(value(&real, &learners), value(&real, &Learners::new()));
        assert!(value(&emulated, &learners) < value(&real, &learners));
        let mixed = [real[0].clone(), emulated[1].clone()];
        assert_eq!(value(&mixed, &learners), None, "one ran on a real GPU, one did not");
    }

    #[test]
    fn programs_of_one_data_set_that_the_host_limits_are_told_to_share_a_loader() {
        let models = Models::known().unwrap();
        let gpu = &models.gpu.iter().find(|model| model.id == "A100-40GB").unwrap().name;
        let of = |id, data: &str| {
            let row = row(id, "train", 8, gpu, 100, 1);
            let arguments = [row.arguments.clone(), vec![format!("--data=/data/{data}")]].concat();
            let host =
                Some(HostUse { cpu_milli: 3900, threads: 4, resident: Bytes(1), ..HostUse::default() });
            Compared { host, ..of(&Row { arguments, ..row }) }
        };
        let told = |all: &[Compared], cores| {
            text::of(all, &pairs(all, &BTreeMap::new(), &models, cores), &shared(all, cores), &[])
                .matches("predicted 1.")
                .count()
        };
        // With itself, too: a program that runs twice loads its data twice.
        assert_eq!(told(&[of(1, "a"), of(2, "a")], 4), 3);
        assert_eq!(told(&[of(1, "a"), of(2, "b")], 4), 2);
        assert_eq!(told(&[of(1, "a"), of(2, "a")], 32), 0);
        let unmeasured = |id| Compared { activity: None, ..of(id, "a") };
        let all = [unmeasured(1), unmeasured(2)];
        assert_eq!(
            (pairs(&all, &BTreeMap::new(), &models, 4).len(), told(&all, 4)),
            (0, 3),
            "the host decides"
        );
    }

    #[test]
    fn a_cards_cost_goes_by_bandwidth_until_the_program_ran_on_both() {
        let models = Models::known().unwrap();
        let model = |id: &str| models.gpu.iter().find(|model| model.id == id).unwrap();
        let (a100, h200) = (model("A100-40GB"), model("H200"));
        let mut rows = vec![row(1, "a", 8, &a100.name, 500, 1000)];
        let cost = |rows: &[Row], on: &GpuSpec| card(&of(&rows[0]), &(on, 2.0), rows, &models);
        let hours = 100.0 / 3600.0;
        let here = cost(&rows, a100);
        assert!((here.cost.unwrap().value - 2.0 * hours).abs() < 1e-9 && here.why == "it ran there");
        let by_bandwidth = cost(&rows, h200).hours.unwrap();
        assert!((by_bandwidth.value - hours * a100.bandwidth_gbs / h200.bandwidth_gbs).abs() < 1e-9);
        rows.push(row(2, "a", 16, &a100.name, 500, 800));
        rows.push(row(3, "a", 16, &h200.name, 500, 2400));
        let own = cost(&rows, h200).hours.unwrap();
        assert!((own.value - hours / 3.0).abs() < 1e-9, "{own:?}");
        assert!(own.high / own.low < by_bandwidth.high / by_bandwidth.low);
        rows[0].footprint_bytes = Some(1 << 40);
        let too_large = cost(&rows, h200);
        assert!(too_large.cost.is_none() && too_large.why.contains("does not fit"));
    }

    #[test]
    fn the_newest_run_of_each_program_is_compared() {
        let dry = Row { origin: Origin::DryRun, ..row(4, "d", 8, "G", 1, 1) };
        let rows = [dry, row(3, "a", 8, "G", 1, 1), row(2, "a", 16, "G", 1, 1), row(1, "a", 8, "G", 1, 1)];
        let ids = |named: &[i64]| chosen(&rows, named).unwrap().iter().map(|row| row.id).collect::<Vec<_>>();
        assert_eq!(ids(&[]), [3, 2]);
        assert_eq!(ids(&[1, 4]), [1, 4]);
        assert!(chosen(&rows, &[9]).unwrap_err().to_string().contains("no run 9"));
    }
}
