//! Jobs of a trace, with what other files know of them.

use std::path::Path;

use radrm_scheduler_core::Millis;
use radrm_scheduler_core::replay::{Profiles, Recorded, Trace, read as traces};

use super::input::{beginning, text, written};
use super::{Flags, cli, scripts};
use crate::Failure;
use crate::error::FileProblem;

/// Measured workloads, or none.
pub(super) fn profiles(path: Option<&Path>) -> Result<Profiles, Failure> {
    let Some(path) = path else { return Ok(Profiles::default()) };
    let read = Profiles::read(&text(path)?).map_err(|error| FileProblem::Trace(error).of(path))?;
    if read.is_empty() {
        return Err(FileProblem::Nothing("profiles").of(path));
    }
    Ok(read)
}

/// Returns true if a file is a script of `.rad` files.
pub(super) fn is_script(path: &Path, order: &Flags) -> bool {
    // Traces in other forms may be large, and begin with a head or with numbers.
    let may_be = traces::form(&beginning(path)).is_none() && path.is_file();
    may_be && written(path).is_ok_and(|text| scripts::of(path, &text, order.rad_files.as_deref()).is_some())
}

/// A trace, or jobs by chance.
pub(super) fn trace(
    path: &Path,
    order: &Flags,
    profiles: &Profiles,
    devices: usize,
) -> Result<Trace, Failure> {
    let most = order.jobs.unwrap_or(usize::MAX);
    let filling = traces::Filling {
        unnamed: Millis((order.unnamed * 60_000.0) as u64),
        load: order.load,
        devices,
        seed: 1,
        profiles: profiles.clone(),
        ..traces::Filling::default()
    };
    let recorded = order.estimates.as_deref().map(recorded).transpose()?;
    let Trace { mut jobs, left_out } = match cli::synthetic(path) {
        Some(count) => traces::synthetic(count.min(most), &filling).into(),
        None => {
            let text = text(path)?;
            match scripts::of(path, &text, order.rad_files.as_deref()) {
                Some(script) => scripts::jobs(&script, recorded.as_ref(), &filling)?.into(),
                None => traces::read(&text, &filling).map_err(|error| FileProblem::Trace(error).of(path))?,
            }
        }
    };
    jobs.truncate(most);
    if jobs.is_empty() {
        return Err(FileProblem::Nothing("jobs").of(path));
    }
    if let Some((recorded, path)) = recorded.zip(order.estimates.as_ref())
        && recorded.give(&mut jobs) == 0
    {
        return Err(FileProblem::Nothing("estimates of the trace's jobs").of(path));
    }
    Ok(Trace { jobs, left_out })
}

/// Recorded estimates and run times.
fn recorded(path: &Path) -> Result<Recorded, Failure> {
    Recorded::read(&text(path)?).map_err(|error| FileProblem::Trace(error).of(path))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    #[test]
    fn a_file_of_profiles_has_at_least_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.csv");
        for content in ["", "workload,smact_mean,smocc_mean,drama_mean\n", "some,other,table\n"] {
            std::fs::write(&path, content).unwrap();
            let why = profiles(Some(&path)).unwrap_err().to_string();
            assert!(why.contains("p.csv: ") && why.lines().count() == 1, "{content}: {why}");
        }
        std::fs::write(&path, "workload,smact_mean,smocc_mean,drama_mean\na,0.5,0.2,0.1\n").unwrap();
        assert!(profiles(Some(&path)).is_ok() && profiles(None).is_ok());
    }

    #[test]
    fn a_gzipped_trace_is_known_by_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let header = "arrival_s,task,rad,duration_min\n";
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(header.repeat(1000).as_bytes()).unwrap();
        for (name, content) in
            [("t.csv.gz", packed.finish().unwrap()), ("t.csv", header.into()), ("gz", vec![])]
        {
            let path = dir.path().join(name);
            std::fs::write(&path, content).unwrap();
            let flags = order(path.to_str().unwrap());
            assert_eq!(crate::replay::is_of_trainings(&path, &flags), name != "gz", "{name}");
        }
        let script = dir.path().join("t.sh");
        std::fs::write(&script, "submit a.rad\nsleep 5\nsubmit b.rad\n").unwrap();
        assert!(crate::replay::is_of_trainings(&script, &order(script.to_str().unwrap())));
        assert_eq!(beginning(&dir.path().join("none")), "");
    }

    fn order(name: &str) -> Flags {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            flags: Flags,
        }
        <Line as clap::Parser>::try_parse_from(["replay", name, "--seeds", "0"]).unwrap().flags
    }

    #[test]
    fn jobs_by_chance_need_a_number() {
        let read = |name: &str| trace(Path::new(name), &order(name), &Profiles::default(), 4);
        assert_eq!(read("synthetic:3").unwrap().jobs.len(), 3);
        assert!(read("none.csv").unwrap_err().to_string().contains("none.csv: No such file"));
        let words = crate::replay::outcome::conditions(&order("synthetic:3"), 4, 4);
        assert!(words.ends_with("needs measured, without chance"), "{words}");
        // The default of five seeds: a trace with nothing but run times is replayed once, and the head says so.
        let five = Flags { seeds: 5, ..order("synthetic:3") };
        let plain = crate::replay::with_chance_of(&crate::replay::model(&five).unwrap(), &five);
        let words = crate::replay::outcome::conditions(&plain, 4, 4);
        assert!(words.ends_with("needs measured, without chance"), "{words}");
        let scattered = Flags { scatter: Some(2.0), ..five };
        let chance = crate::replay::with_chance_of(&crate::replay::model(&scattered).unwrap(), &scattered);
        assert!(crate::replay::outcome::conditions(&chance, 4, 4).ends_with("5 seeds"));
    }
}
