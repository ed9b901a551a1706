//! GPU activity of programs alone, from a table of measured workloads.
//! Also the search for the row of a trace's job in that table.

use std::collections::BTreeMap;

use super::read::ReadError;
use super::read::columns::PROFILES;
use super::read::table::Table;
use crate::interference::Activity;
use crate::units::{Millis, Permille};

/// A measured workload.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    name: String,
    /// Mean over the GPUs that it really uses.
    activity: Activity,
    /// Number of those GPUs.
    gpus: u32,
    /// Run time of the measured run, s; 0 if the table does not say.
    seconds: f64,
}

/// Program of a job, by which the job finds its row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Program<'a> {
    /// The model's name.
    pub model: &'a str,
    /// Dataset that it is trained on.
    pub dataset: &'a str,
    /// The batch size.
    pub batch: u32,
    /// Number of epochs.
    pub epochs: u32,
    /// Its GPUs.
    pub gpus: u16,
    /// Run time alone, if that is known.
    pub ran: Option<Millis>,
}

/// Measured workloads: `workload,...,smact_mean,...,smocc_mean,...,drama_mean`, one row for each GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profiles {
    rows: Vec<Row>,
}

impl Profiles {
    /// Reads the table.
    ///
    /// # Errors
    /// Columns are missing or a value is wrong.
    pub fn read(text: &str) -> Result<Self, ReadError> {
        let table = Table::read(text)?;
        table.require(&PROFILES)?;
        let mut all: BTreeMap<String, Vec<Activity>> = BTreeMap::new();
        let mut seconds: BTreeMap<String, f64> = BTreeMap::new();
        let mut order = Vec::new();
        for row in &table.rows {
            let part = |column| -> Result<Permille, ReadError> {
                Ok(Permille::from_fraction(table.number(row, column)?.unwrap_or(0.0)))
            };
            let activity = Activity {
                smact: part("smact_mean")?,
                smocc: part("smocc_mean")?,
                drama: part("drama_mean")?,
            };
            let name = table.text(row, "workload")?.to_owned();
            if table.has("total_s") {
                seconds.insert(name.clone(), table.number(row, "total_s")?.unwrap_or(0.0));
            }
            let seen = all.entry(name.clone()).or_default();
            if seen.is_empty() {
                order.push(name);
            }
            seen.push(activity);
        }
        let rows = order.into_iter().map(|name| {
            // Of a job of several GPUs the mean of those that it really uses.
            let used: Vec<Activity> = all[&name].iter().copied().filter(|gpu| gpu.smact.0 > 0).collect();
            Row {
                activity: mean(&used).unwrap_or_default(),
                gpus: u32::try_from(used.len()).unwrap_or(0),
                seconds: seconds.get(&name).copied().unwrap_or(0.0),
                name,
            }
        });
        Ok(Self { rows: rows.collect() })
    }

    /// Returns true if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The activity of a workload by its exact name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Activity> {
        self.rows.iter().find(|row| row.name == name).map(|row| row.activity)
    }

    /// The activity of a program: that of the row of the same dataset and batch (and of as many
    /// epochs, if there is a choice) whose name begins most like the model's; else the mean of the
    /// rows of the same dataset; else the mean of all. `None` only of an empty table.
    ///
    /// The work is the same in every run, so if it is known how long the job ran, its SMs were busy
    /// for that part of it: activity * time * GPUs of the measured run / (time * GPUs of the job).
    #[must_use]
    pub fn find(&self, of: &Program<'_>) -> Option<Activity> {
        // Its own short forms of names: "s_mobilenetv3" is a small mobilenet.
        let model = of.model.strip_prefix("s_").unwrap_or(of.model);
        let (batch, epochs) = (format!("_bs{}_", of.batch), format!("_{}e_", of.epochs));
        let of_dataset =
            || self.rows.iter().filter(|row| row.name.contains(of.dataset) && !of.dataset.is_empty());
        let alike = |row: &&Row| row.name.bytes().zip(model.bytes()).take_while(|(a, b)| a == b).count();
        let exact = of_dataset()
            .filter(|row| row.name.contains(&batch))
            .max_by_key(|row| (alike(row), row.name.contains(&epochs), std::cmp::Reverse(&row.name)));
        if let Some(row) = exact.filter(|row| alike(row) >= 5) {
            let measured = row.seconds * f64::from(row.gpus);
            return Some(match of.ran {
                Some(ran) if measured > 0.0 && ran > Millis::ZERO => {
                    row.activity.scaled(measured / (ran.as_secs_f64() * f64::from(of.gpus.max(1))))
                }
                _ => row.activity,
            });
        }
        let near: Vec<Activity> = of_dataset().map(|row| row.activity).collect();
        mean(&near).or_else(|| mean(&self.rows.iter().map(|row| row.activity).collect::<Vec<_>>()))
    }
}

fn mean(all: &[Activity]) -> Option<Activity> {
    let n = u32::try_from(all.len()).ok().filter(|n| *n > 0)?;
    let part = |pick: fn(&Activity) -> Permille| Permille(all.iter().map(|one| pick(one).0).sum::<u32>() / n);
    Some(Activity { smact: part(|a| a.smact), smocc: part(|a| a.smocc), drama: part(|a| a.drama) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "workload,gpus,gpu_label,smact_mean,smocc_mean,drama_mean\n\
        resnet18_cifar100_bs32_20e_1gpu,1,single,0.17,0.06,0.05\n\
        resnet34_cifar100_bs32_20e_1gpu,1,single,0.18,0.07,0.06\n\
        mobilenet_cifar100_bs32_20e_1gpu,1,single,0.08,0.04,0.01\n\
        big_wiki_bs8_2gpu,2,gpu_a,0.80,0.30,0.20\n\
        big_wiki_bs8_2gpu,2,gpu_b,0,0,0\n";

    #[test]
    fn jobs_find_their_rows() {
        let profiles = Profiles::read(TABLE).unwrap();
        let program =
            |model, dataset, batch| Program { model, dataset, batch, epochs: 20, gpus: 1, ran: None };
        let smact = |model, dataset, batch| profiles.find(&program(model, dataset, batch)).unwrap().smact.0;
        assert_eq!(smact("resnet34", "cifar100", 32), 180);
        assert_eq!(smact("s_mobilenetv3", "cifar100", 32), 80);
        assert_eq!(smact("bert", "wiki", 32), 800, "another model on the same data");
        assert_eq!(smact("resnet18", "cifar100", 999), 143, "no such batch: the mean of the data's rows");
        assert_eq!(smact("x", "nothing", 1), 307);
        assert_eq!(Profiles::default().find(&program("x", "y", 1)), None);
        assert_eq!(profiles.get("big_wiki_bs8_2gpu").unwrap().smact, Permille(800));
    }

    #[test]
    fn a_slower_run_of_the_same_work_is_less_active() {
        let table = TABLE.replace("drama_mean\n", "drama_mean,total_s\n").replace(['\n'], ",100\n");
        let profiles = Profiles::read(&table.replace("total_s,100", "total_s")).unwrap();
        let program = |model, dataset, batch, gpus, ran| {
            let ran = Some(Millis::from_secs(ran));
            profiles.find(&Program { model, dataset, batch, epochs: 20, gpus, ran }).unwrap().smact.0
        };
        assert_eq!(program("resnet34", "cifar100", 32, 1, 200), 90);
        assert_eq!(program("resnet34", "cifar100", 32, 1, 90), 200);
        assert_eq!(program("resnet34", "cifar100", 32, 1, 1), 1000, "never more than all of the time");
        assert_eq!(program("big", "wiki", 8, 2, 100), 800, "no row begins with enough of it");
        assert_eq!(program("big_wiki", "wiki", 8, 2, 100), 400, "one GPU's work on two");
    }

    #[test]
    fn a_missing_column_is_told() {
        assert_eq!(
            Profiles::read("workload\nx\n").unwrap_err().to_string(),
            "the columns smact_mean, smocc_mean and drama_mean are missing"
        );
    }
}
