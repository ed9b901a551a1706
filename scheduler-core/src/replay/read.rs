//! Traces as text, in the forms they are published in. Reading files is the caller's part.

mod calendar;
pub(super) mod columns;
mod error;
mod found;
mod helios;
mod pai;
mod philly;
mod sacct;
mod script;
pub(super) mod table;
mod thesis;

pub use error::{MAX_DEVICES, ReadError};
pub use found::{LeftOut, Trace};
pub use script::{Script, script};
pub use thesis::Training;

use radrm_base::random::Rng;

use super::profiles::Profiles;
use super::trace::{Cluster, TraceJob};
use crate::device::{Device, DeviceId, Node, NodeId};
use crate::job::HostNeed;
use crate::units::{Bytes, Millis, Permille};
use radrm_base::UserId;
use table::{Table, mib, seconds};

/// The forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `arrival_s,task,rad,model,...`: the traces of the thesis.
    Thesis,
    /// Alibaba's openb: `name,cpu_milli,...,creation_time,...`.
    Openb,
    /// One run time in seconds a line, under the head `runtime`.
    RunTimes,
    /// The Standard Workload Format.
    Swf,
    /// Philly's jobs with their attempts, JSON.
    Philly,
    /// `sacct --parsable2`.
    Sacct,
    /// Helios's `cluster_log.csv`.
    Helios,
    /// Alibaba's `pai_task_table.csv`.
    Pai,
}

/// Values for what a trace does not state itself.
#[derive(Clone, Debug)]
pub struct Filling {
    /// Run time of jobs of which none is published.
    pub unnamed: Millis,
    /// Arrivals of traces that have none: mean use of the devices, 1 is all of them.
    pub load: f64,
    /// Devices they arrive for.
    pub devices: usize,
    /// Seed of the arrivals.
    pub seed: u64,
    /// GPU activity of programs.
    pub profiles: Profiles,
    /// The SM and DRAM activity of the thesis's jobs against that of the profiled runs, which are of
    /// later software, beyond what their run times tell.
    pub activity: f64,
}

impl Default for Filling {
    fn default() -> Self {
        Self {
            unnamed: Millis::from_mins(5),
            load: 0.8,
            devices: 4,
            seed: 1,
            profiles: Profiles::default(),
            activity: 0.95,
        }
    }
}

/// Returns the form that a text is in, or `None` if it is in no known one.
#[must_use]
pub fn form(text: &str) -> Option<Form> {
    let first = text.lines().find(|line| !line.trim().is_empty())?.trim_start_matches('\u{feff}').trim();
    let columns: Vec<&str> = first.split(',').map(str::trim).collect();
    if columns.contains(&"arrival_s") && columns.contains(&"duration_min") {
        return Some(Form::Thesis);
    }
    if columns.contains(&"gpu_milli") && columns.contains(&"creation_time") {
        return Some(Form::Openb);
    }
    if columns == ["runtime"] {
        return Some(Form::RunTimes);
    }
    if columns.contains(&"gpu_num") && columns.contains(&"submit_time") {
        return Some(Form::Helios);
    }
    if pai::is_pai(&columns) {
        return Some(Form::Pai);
    }
    if philly::is_philly(text) {
        return Some(Form::Philly);
    }
    if sacct::is_sacct(text.trim_start_matches('\u{feff}')) {
        return Some(Form::Sacct);
    }
    let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with(';'))?;
    let numbers: Vec<&str> = line.split_whitespace().collect();
    (numbers.len() == 18 && numbers.iter().all(|number| number.parse::<f64>().is_ok())).then_some(Form::Swf)
}

/// Reads a trace.
///
/// # Errors
/// The text is in no known form, or a value in it is wrong.
pub fn read(text: &str, filling: &Filling) -> Result<Trace, ReadError> {
    let mut trace = match form(text) {
        Some(Form::Thesis) => thesis::read(text, filling)?.into(),
        Some(Form::Openb) => openb(text)?.into(),
        Some(Form::RunTimes) => run_times(text, filling)?,
        Some(Form::Swf) => swf(text)?,
        Some(Form::Philly) => philly::read(text.trim_start_matches('\u{feff}'))?,
        Some(Form::Sacct) => sacct::read(text.trim_start_matches('\u{feff}'))?,
        Some(Form::Helios) => helios::read(text)?,
        Some(Form::Pai) => pai::read(text)?,
        None => {
            if let Some(error) = columns::nearly(text) {
                return Err(error);
            }
            let first: String = text.lines().next().unwrap_or_default().chars().take(60).collect();
            return Err(ReadError::Unknown(first));
        }
    };
    if trace.jobs.is_empty() {
        let rows = trace.left_out.rows();
        let why = if rows > 0 { format!(": of {rows} rows {}", trace.left_out) } else { String::new() };
        return Err(ReadError::Empty(why));
    }
    trace.jobs.sort_by_key(|job| job.arrival);
    Ok(trace)
}

fn openb(text: &str) -> Result<Vec<TraceJob>, ReadError> {
    let table = Table::read(text)?;
    table.require(&columns::OPENB)?;
    let mut jobs = Vec::with_capacity(table.rows.len());
    for row in &table.rows {
        let time = |column| table.number(row, column).map(|value| value.map(seconds));
        let created = time("creation_time")?.unwrap_or_default();
        let begun = time("scheduled_time")?.unwrap_or(created);
        let gone = time("deletion_time")?.unwrap_or(begun);
        // A pod that was never scheduled ran for no time that is known: the time it existed.
        let mut job = TraceJob::new(table.text(row, "name")?, created, gone.minus(begun).max(Millis(1000)));
        job.gpus = table.number(row, "num_gpu")?.unwrap_or(0.0) as u16;
        let milli = table.number(row, "gpu_milli")?.unwrap_or(0.0) as u32;
        job.share = (job.gpus > 0).then_some(Permille(milli.min(1000)));
        job.host = HostNeed {
            cpu_milli: table.number(row, "cpu_milli")?.unwrap_or(0.0) as u64,
            memory: mib(table.number(row, "memory_mib")?.unwrap_or(0.0)),
        };
        jobs.push(job);
    }
    Ok(jobs)
}

/// The machines of openb: `sn,cpu_milli,memory_mib,gpu,model`.
///
/// # Errors
/// Columns are missing or a value is wrong.
pub fn openb_nodes(text: &str) -> Result<Cluster, ReadError> {
    let table = Table::read(text)?;
    table.require(&columns::NODES)?;
    let mut cluster = Cluster::default();
    for (at, row) in table.rows.iter().enumerate() {
        let node = NodeId(at as u32);
        cluster.nodes.push(Node {
            id: node,
            cpu_milli: table.number(row, "cpu_milli")?.unwrap_or(0.0) as u64,
            memory: mib(table.number(row, "memory_mib")?.unwrap_or(0.0)),
            memory_bandwidth: None,
        });
        let model = table.text(row, "model")?;
        let gpus = table.number(row, "gpu")?.unwrap_or(0.0);
        if gpus + cluster.devices.len() as f64 > MAX_DEVICES as f64 {
            return Err(ReadError::TooManyDevices);
        }
        for _ in 0..gpus as u32 {
            let id = DeviceId(cluster.devices.len() as u32);
            // The trace has no GPU memory; shares say what fits.
            let capacity = Bytes::from_gib(32);
            cluster.devices.push(Device {
                id,
                node,
                model: model.to_owned(),
                capacity,
                parent: None,
                shared: true,
            });
        }
    }
    Ok(cluster)
}

fn run_times(text: &str, filling: &Filling) -> Result<Trace, ReadError> {
    let table = Table::read(text)?;
    let mut times = Vec::with_capacity(table.rows.len());
    let mut left_out = LeftOut::default();
    for row in &table.rows {
        match table.number(row, "runtime")?.filter(|time| *time > 0.0) {
            Some(time) => times.push(time),
            None => left_out.count("have no run time, or one of 0"),
        }
    }
    let count = times.len();
    let total: f64 = times.iter().sum();
    let span = total / filling.load.max(0.01) / filling.devices.max(1) as f64;
    let mut rng = Rng::new(filling.seed, 3);
    // Times come sorted; which job has which is chance.
    for at in (1..count).rev() {
        times.swap(at, (rng.bits() % (at as u64 + 1)) as usize);
    }
    let jobs = times.into_iter().enumerate().map(|(at, time)| {
        let arrival = seconds(rng.unit() * span);
        TraceJob {
            share: Some(Permille::WHOLE),
            ..TraceJob::new(format!("job-{at}"), arrival, seconds(time))
        }
    });
    Ok(Trace { jobs: jobs.collect(), left_out })
}

fn swf(text: &str) -> Result<Trace, ReadError> {
    let mut jobs = Vec::new();
    let mut left_out = LeftOut::default();
    for (line, fields) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with(';')) {
        let values: Vec<&str> = fields.split_whitespace().collect();
        if values.is_empty() {
            continue;
        }
        let field = |at: usize, column: &str| -> Result<f64, ReadError> {
            let value = values.get(at).copied().unwrap_or_default();
            value.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(|| ReadError::Value {
                line: line as u64 + 1,
                column: column.to_owned(),
                value: value.to_owned(),
                wanted: "number",
            })
        };
        let (submit, ran) = (field(1, "submit time")?, field(3, "run time")?);
        let (allocated, requested) = (field(4, "processors")?, field(7, "requested processors")?);
        let gpus = if allocated > 0.0 { allocated } else { requested };
        // -1 stands for what is not known: such jobs never ran.
        if ran <= 0.0 || gpus <= 0.0 {
            left_out.count("have no run time or no processors");
            continue;
        }
        let name = format!("program-{}-{}", field(11, "user")?, field(13, "executable")?);
        let mut job = TraceJob::new(name, seconds(submit.max(0.0)), seconds(ran));
        job.gpus = gpus.min(f64::from(u16::MAX)) as u16;
        job.user = UserId(field(11, "user")?.max(0.0) as u32);
        job.share = Some(Permille::WHOLE);
        let limit = field(8, "requested time")?;
        job.time_limit = (limit >= ran).then(|| seconds(limit));
        jobs.push(job);
    }
    Ok(Trace { jobs, left_out })
}

/// Jobs by chance, for measuring the replay itself: `count` jobs of 1 to 20 GiB and of all kinds of
/// activity, that keep `devices` devices of 40 GiB busy by `load`.
#[must_use]
pub fn synthetic(count: usize, filling: &Filling) -> Vec<TraceJob> {
    let mut rng = Rng::new(filling.seed, 4);
    let mut now = 0.0f64;
    let mean = 1200.0;
    let gap = mean / filling.load.max(0.01) / filling.devices.max(1) as f64;
    let jobs = (0..count).map(|at| {
        // Between two arrivals the time is exponential to within a percent of its mean and its
        // deviation: a sum of uniforms would be too even, and ln differs between machines.
        let (a, b) = (rng.unit(), rng.unit());
        now += gap * 4.0 * a * b;
        let length = rng.unit();
        let mut job = TraceJob::new(
            format!("kind-{}", at % 50),
            seconds(now),
            seconds(60.0 + 3.0 * (mean - 60.0) * length * length),
        );
        job.peak = Bytes::from_mib(1024 + rng.bits() % (19 * 1024));
        job.user = UserId((rng.bits() % 8) as u32);
        let smact = rng.between(0.05, 0.9);
        job.activity = Some(crate::interference::Activity {
            smact: Permille::from_fraction(smact),
            smocc: Permille::from_fraction(smact / 2.0),
            drama: Permille::from_fraction(smact * rng.unit() * 0.7),
        });
        job
    });
    jobs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Condition;

    const SWF: &str = "; UnixStartTime: 0\n\n1 10 5 100 4 -1 -1 4 200 -1 1 7 1 3 -1 -1 -1 -1\n2 20 -1 -1 -1 -1 -1 4 200 -1 0 7 1 3 -1 -1 -1 -1\n";

    #[test]
    fn forms_are_told_apart() {
        assert_eq!(form("arrival_s,task,rad,duration_min\n"), Some(Form::Thesis));
        assert_eq!(form("name,gpu_milli,creation_time\n"), Some(Form::Openb));
        assert_eq!(form("runtime\n1.0\n"), Some(Form::RunTimes));
        assert_eq!(form(SWF), Some(Form::Swf));
        assert_eq!(form("job_id,user,vc,gpu_num,submit_time,duration\n"), Some(Form::Helios));
        assert_eq!(form("3f,worker,2,Terminated,10.0,20.0,600.0,29.3,50.0,T4\n"), Some(Form::Pai));
        assert_eq!(form("3f,worker,2,unsure,10.0,20.0,600.0,29.3,50.0,T4\n"), None);
        assert_eq!(form("hello\nworld\n"), None);
        assert_eq!(form(""), None);
    }

    #[test]
    fn a_standard_workload_is_read() {
        let Trace { jobs, left_out } = read(SWF, &Filling::default()).unwrap();
        assert_eq!(jobs.len(), 1, "a job that never ran is left out");
        assert_eq!(left_out.to_string(), "1 have no run time or no processors");
        assert_eq!((jobs[0].arrival, jobs[0].duration), (Millis::from_secs(10), Millis::from_secs(100)));
        assert_eq!((jobs[0].gpus, jobs[0].user), (4, UserId(7)));
        assert_eq!(jobs[0].time_limit, Some(Millis::from_secs(200)));
    }

    #[test]
    fn wrong_values_are_told_with_their_line() {
        let text = "arrival_s,task,rad,model,batch,dataset,n_gpus,mem_mib,duration_min\n0,1,a,m,8,d,1,100,5\nx,2,b,m,8,d,1,100,5\n";
        let error = read(text, &Filling::default()).unwrap_err().to_string();
        assert_eq!(error, "line 3: arrival_s is \"x\", which is not a number that is not negative");
        assert_eq!(
            read("arrival_s,duration_min\n0,1\n", &Filling::default()).unwrap_err().to_string(),
            "the columns rad, model, batch, dataset, n_gpus and mem_mib are missing"
        );
        assert_eq!(
            read("name,gpu_milli,creation_time\na,5,0\n", &Filling::default()).unwrap_err().to_string(),
            "the columns cpu_milli, memory_mib, num_gpu, scheduled_time and deletion_time are missing"
        );
        assert_eq!(
            openb_nodes("sn,gpu\na,1\n").unwrap_err().to_string(),
            "the columns cpu_milli, memory_mib and model are missing"
        );
        assert!(matches!(read("runtime\n", &Filling::default()), Err(ReadError::Empty(_))));
        let none = read("runtime\n0\n\"\"\n", &Filling::default()).unwrap_err().to_string();
        assert_eq!(none, "there are no jobs in it: of 2 rows 2 have no run time, or one of 0");
        assert!(matches!(read("what is this", &Filling::default()), Err(ReadError::Unknown(_))));
    }

    #[test]
    fn jobs_whose_run_time_is_assumed_are_known() {
        let text = "arrival_s,task,rad,model,batch,dataset,n_gpus,mem_mib,duration_min\n0,1,a,m,8,d,1,100,5\n0,2,b,m,8,d,1,100,\n";
        let jobs = read(text, &Filling::default()).unwrap().jobs;
        let assumed: Vec<_> = jobs.iter().map(|job| (job.name.as_str(), job.is_duration_assumed)).collect();
        assert_eq!(assumed, [("a", false), ("b", true)]);
    }

    #[test]
    fn a_job_larger_than_the_cluster_can_never_run() {
        use crate::replay::Cluster;
        let cluster = Cluster::uniform(2, "G", Bytes::from_gib(40));
        let job = |gpus, gib| TraceJob {
            gpus,
            peak: Bytes::from_gib(gib),
            ..TraceJob::new("x", Millis::ZERO, Millis::ZERO)
        };
        assert!(cluster.holds(&job(2, 40)) && cluster.holds(&job(1, 0)));
        assert!(!cluster.holds(&job(3, 1)) && !cluster.holds(&job(1, 41)));
        let other = TraceJob { model: Some("H".into()), ..job(1, 1) };
        assert!(!cluster.holds(&other));
    }

    #[test]
    fn dependencies_name_tasks_that_arrive_before() {
        let head = "arrival_s,task,rad,model,batch,dataset,n_gpus,mem_mib,duration_min,after\n";
        let trace = |rows: &str| read(&format!("{head}{rows}"), &Filling::default()).map(|trace| trace.jobs);
        // Out of order in the file: places are by arrival.
        let jobs =
            trace("20,c,p,m,8,d,1,100,5,\"any:a; ok:a,b\"\n0,a,p,m,8,d,1,100,5,\n10,b,p,m,8,d,1,100,5,a\n");
        let jobs = jobs.unwrap();
        let after = |job: &TraceJob| -> Vec<(Condition, u64)> {
            job.after.iter().map(|after| (after.condition, after.first.0)).collect()
        };
        let (any, ok) = (Condition::Any, Condition::Ok);
        assert_eq!(
            jobs.iter().map(after).collect::<Vec<_>>(),
            [vec![], vec![(any, 0)], vec![(any, 0), (ok, 0), (ok, 1)]]
        );
        for (rows, part) in [
            (
                "0,a,p,m,8,d,1,100,5,b\n10,b,p,m,8,d,1,100,5,\n",
                "line 2: after is \"b\", which is not a task that",
            ),
            ("0,a,p,m,8,d,1,100,5,a\n", "\"a\""),
            (
                "0,a,p,m,8,d,1,100,5,\n10,b,p,m,8,d,1,100,5,good:a\n",
                "line 3: after is \"good\", which is not a cond",
            ),
        ] {
            let error = trace(rows).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn run_times_arrive_at_the_load_that_is_asked_for() {
        let text = format!("runtime\n{}", "100\n".repeat(2000));
        let filling = Filling { load: 0.5, devices: 10, ..Filling::default() };
        let jobs = read(&text, &filling).unwrap().jobs;
        let last = jobs.last().unwrap().arrival.as_secs_f64();
        assert!((last - 40_000.0).abs() < 400.0, "{last}");
        assert!(jobs.is_sorted_by_key(|job| job.arrival));
    }

    #[test]
    fn synthetic_jobs_load_the_devices_as_asked() {
        let filling = Filling { load: 0.7, devices: 8, ..Filling::default() };
        let jobs = synthetic(20_000, &filling);
        let work: f64 = jobs.iter().map(|job| job.duration.as_secs_f64()).sum();
        let load = work / jobs.last().unwrap().arrival.as_secs_f64() / 8.0;
        assert!((load - 0.7).abs() < 0.05, "{load}");
    }
}
