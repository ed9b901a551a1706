//! Trainings of the thesis's traces, and of `.rad` files in the form that its code reads.

use std::collections::BTreeMap;

use csv::StringRecord;

use super::columns::THESIS;
use super::table::{Table, estimators, mib, seconds};
use super::{Filling, ReadError};
use crate::job::{Condition, Dependency, JobId};
use crate::rad_file::RadFile;
use crate::replay::profiles::Program;
use crate::replay::trace::TraceJob;
use crate::units::{Bytes, Millis};

/// A training as a trace states it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Training<'a> {
    /// Name of its `.rad` file.
    pub name: &'a str,
    /// Submission time.
    pub arrival: Millis,
    /// Run time alone, where the trace has one.
    pub ran: Option<Millis>,
    /// Its GPUs.
    pub gpus: u16,
    /// Its peak on each GPU; zero: not known.
    pub peak: Bytes,
    /// The model's name.
    pub model: &'a str,
    /// Dataset that it is trained on.
    pub dataset: &'a str,
    /// The batch size; 0: not known.
    pub batch: u32,
    /// Number of epochs; 0: not known.
    pub epochs: u32,
}

impl<'a> Training<'a> {
    /// The training of a `.rad` file, which states no run time and no epochs.
    #[must_use]
    pub fn of_file(name: &'a str, arrival: Millis, ran: Option<Millis>, file: &'a RadFile) -> Self {
        let model = file.model.as_deref().unwrap_or_default();
        let model = model.rsplit('/').next().unwrap_or_default();
        Self {
            name,
            arrival,
            ran,
            gpus: file.gpus,
            peak: file.measured.unwrap_or_default(),
            model: model.split('.').next().unwrap_or_default(),
            dataset: file.dataset.as_deref().unwrap_or_default(),
            batch: file.batch.unwrap_or(0),
            epochs: 0,
        }
    }

    /// The job, with what `filling` has for what is not known.
    #[must_use]
    pub fn job(&self, filling: &Filling) -> TraceJob {
        let Self { name, arrival, ran, gpus, peak, model, dataset, batch, epochs } = *self;
        let mut job = TraceJob::new(name, arrival, ran.unwrap_or(filling.unnamed));
        job.is_duration_assumed = ran.is_none();
        (job.gpus, job.peak) = (gpus, peak);
        if batch > 0 {
            (job.program, job.batch) = (format!("{model} {dataset} {epochs}"), Some(batch));
        }
        let found = filling.profiles.find(&Program { model, dataset, batch, epochs, gpus, ran });
        job.activity = found.map(|activity| activity.scaled(filling.activity));
        job
    }
}

pub(super) fn read(text: &str, filling: &Filling) -> Result<Vec<TraceJob>, ReadError> {
    let table = Table::read(text)?;
    table.require(&THESIS)?;
    let estimators = estimators(&table);
    let job = |row: &StringRecord| -> Result<TraceJob, ReadError> {
        let number = |column| table.number(row, column);
        let training = Training {
            name: table.text(row, "rad")?,
            arrival: seconds(number("arrival_s")?.unwrap_or(0.0)),
            ran: number("duration_min")?.map(|min| seconds(min * 60.0)),
            gpus: number("n_gpus")?.unwrap_or(1.0) as u16,
            peak: mib(number("mem_mib")?.unwrap_or(0.0)),
            model: table.text(row, "model")?,
            dataset: table.text(row, "dataset")?,
            batch: number("batch")?.unwrap_or(0.0) as u32,
            epochs: if table.has("epochs") { number("epochs")?.unwrap_or(0.0) as u32 } else { 0 },
        };
        let mut job = training.job(filling);
        for (column, name) in &estimators {
            if let Some(value) = table.number(row, column)? {
                job.estimates.insert(name.clone(), mib(value));
            }
        }
        Ok(job)
    };
    let mut jobs =
        table.rows.iter().map(|row| Ok((job(row)?, row))).collect::<Result<Vec<_>, ReadError>>()?;
    // Places in the trace are those in order of arrival.
    jobs.sort_by_key(|(job, _)| job.arrival);
    if table.has("after") {
        let mut tasks = BTreeMap::new();
        for (place, (job, row)) in jobs.iter_mut().enumerate() {
            job.after = dependencies(&table, row, &tasks)?;
            tasks.insert(table.text(row, "task")?.to_owned(), JobId(place as u64));
        }
    }
    Ok(jobs.into_iter().map(|(job, _)| job).collect())
}

/// Reads the dependencies of a row.
/// Like `--after`: tasks of rows before it with a condition, several separated by semicolons.
fn dependencies(
    table: &Table,
    row: &StringRecord,
    tasks: &BTreeMap<String, JobId>,
) -> Result<Vec<Dependency>, ReadError> {
    let wrong = |value: &str, wanted| ReadError::Value {
        line: row.position().map_or(0, csv::Position::line),
        column: "after".to_owned(),
        value: value.to_owned(),
        wanted,
    };
    let mut found = Vec::new();
    for text in table.text(row, "after")?.split(';').map(str::trim).filter(|text| !text.is_empty()) {
        let (condition, named) =
            Condition::split(text).map_err(|word| wrong(word, "condition: any or ok"))?;
        for task in named.split(',').map(str::trim) {
            let job = *tasks.get(task).ok_or_else(|| wrong(task, "task that arrives before it"))?;
            found.push(Dependency { condition, first: job, last: job, failed: None });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::profiles::Profiles;

    #[test]
    fn a_rad_file_is_a_training_whose_run_time_is_assumed() {
        let text = "# resnet\nconda activate torch\npython3 train.py\nmodels/resnet50.txt\nimagenet\n32\n\
            collocation\n2\n5262\n7903.9316\n40000\n16000.0\n";
        let file = RadFile::parse(text).unwrap();
        let table = "workload,smact_mean,smocc_mean,drama_mean\nresnet50_imagenet_bs32_1gpu,0.8,0.4,0.2\n";
        let filling = Filling { profiles: Profiles::read(table).unwrap(), ..Filling::default() };
        let job = Training::of_file("resnet", Millis(7), None, &file).job(&filling);
        assert_eq!((job.name.as_str(), job.arrival, job.gpus), ("resnet", Millis(7), 2));
        assert_eq!((job.peak, job.batch), (Bytes::from_mib(5262), Some(32)));
        assert_eq!((job.duration, job.is_duration_assumed), (filling.unnamed, true));
        assert_eq!(job.activity.map(|activity| activity.smact.0), Some(760), "as active as 0.95 of 0.8");
        let known = Training::of_file("resnet", Millis(7), Some(Millis(90)), &file).job(&filling);
        assert_eq!((known.duration, known.is_duration_assumed), (Millis(90), false));
    }
}
