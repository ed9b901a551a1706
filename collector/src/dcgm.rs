//! DCGM, by its command-line tool: SM activity of GPUs that NVML does not measure.

use crate::activity::{Metered, Reading};
use radrm_profile::Nanos;
use radrm_profile::model::{GpuIndex, Meter};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use thiserror::Error;

/// Fields of DCGM, in the order of the columns: SMACT, SMOCC, tensor, DRAM, GRACT.
const FIELDS: &str = "1002,1003,1004,1005,1001";

/// Time between two lines, milliseconds.
const DELAY_MS: &str = "500";

/// DCGM that is queried for GPUs that NVML does not measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DcgmSource {
    /// `dcgmi` of the PATH, if NVML is the system's.
    #[default]
    System,
    /// The tool at this path.
    Tool(PathBuf),
    /// None.
    Off,
}

impl DcgmSource {
    fn tool(&self) -> Option<OsString> {
        match self {
            DcgmSource::System => Some("dcgmi".into()),
            DcgmSource::Tool(path) => Some(path.clone().into()),
            DcgmSource::Off => None,
        }
    }
}

/// Reason that DCGM measures nothing.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum DcgmError {
    #[error("DCGM is not asked")]
    Off,
    #[error("there is no dcgmi")]
    NotInstalled,
    #[error("dcgmi cannot be started: {0}")]
    NotStarted(std::io::Error),
    #[error("no thread for dcgmi: {0}")]
    NoThread(std::io::Error),
}

/// Message of the tool's thread.
enum Said {
    Reading(Box<Reading>),
    /// It has ended; its own words.
    Ended(String),
}

/// The tool at work.
pub(crate) struct Dcgm {
    child: Child,
    from: Receiver<Said>,
    gpus: Vec<(u32, GpuIndex)>,
    has_said: bool,
}

impl Dcgm {
    /// Starts it for GPUs by the numbers that the driver's tools have for them. `Err`: why not.
    pub(crate) fn start(
        source: &DcgmSource,
        gpus: Vec<(u32, GpuIndex)>,
        now: impl Fn() -> Nanos + Send + 'static,
    ) -> Result<Dcgm, DcgmError> {
        let tool = source.tool().ok_or(DcgmError::Off)?;
        let numbers: Vec<String> = gpus.iter().map(|(number, _)| number.to_string()).collect();
        let mut child = Command::new(&tool)
            .args(["dmon", "-e", FIELDS, "-d", DELAY_MS, "-i", &numbers.join(",")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => DcgmError::NotInstalled,
                _ => DcgmError::NotStarted(error),
            })?;
        let (to, from) = channel();
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let known = gpus.clone();
        let work = move || {
            if let Some(out) = out {
                listen(BufReader::new(out), err, &known, &now, &to);
            }
        };
        if let Err(error) = thread::Builder::new().name("radrm-dcgm".into()).spawn(work) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(DcgmError::NoThread(error));
        }
        Ok(Dcgm { child, from, gpus, has_said: false })
    }

    /// The GPUs that it is asked about.
    pub(crate) fn gpus(&self) -> &[(u32, GpuIndex)] {
        &self.gpus
    }

    /// Readings since the last call. The second part: the tool's own words, if it has ended before it measured
    /// anything.
    pub(crate) fn readings(&mut self) -> (Vec<Reading>, Option<String>) {
        let mut readings = Vec::new();
        let mut ended = None;
        for said in self.from.try_iter() {
            match said {
                Said::Reading(reading) => readings.push(*reading),
                Said::Ended(why) => ended = Some(why),
            }
        }
        self.has_said |= !readings.is_empty();
        (readings, ended.filter(|_| !self.has_said))
    }
}

/// SM activity, SM occupancy and DRAM activity, parts of 1; `None`: not measured.
pub type Activities = [Option<f64>; 3];

/// Means of a GPU since the last call.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuActivity {
    /// UUID of the GPU.
    pub uuid: String,
    /// SM activity, SM occupancy and DRAM activity.
    pub activity: Activities,
    /// Part of the time in which the graphics or compute engine was in use (GRACT).
    pub gr_active: Option<f64>,
}

/// DCGM for a monitor of all GPUs of a node.
pub struct NodeDcgm {
    dcgm: Dcgm,
    uuids: Vec<String>,
}

impl NodeDcgm {
    /// Starts the tool for GPUs, each by its number for the driver's tools and its UUID.
    ///
    /// # Errors
    /// Why nothing is measured.
    pub fn start(source: &DcgmSource, gpus: &[(u32, String)]) -> Result<Self, DcgmError> {
        let index = |at: usize| GpuIndex(u8::try_from(at).unwrap_or(u8::MAX));
        let numbers = gpus.iter().enumerate().map(|(at, (number, _))| (*number, index(at))).collect();
        let dcgm = Dcgm::start(source, numbers, || Nanos(radrm_telemetry::monotonic_ns()))?;
        Ok(Self { dcgm, uuids: gpus.iter().map(|(_, uuid)| uuid.clone()).collect() })
    }

    /// Means of what was measured since the last call, by UUID; those of which nothing was are left out.
    ///
    /// # Errors
    /// The tool has ended before it measured anything: its own words.
    pub fn read(&mut self) -> Result<Vec<GpuActivity>, String> {
        let (readings, ended) = self.dcgm.readings();
        if let Some(why) = ended {
            return Err(why);
        }
        let mean = |gpu: usize, part: fn(&Metered) -> Option<f64>| {
            let own = readings.iter().filter(|reading| usize::from(reading.gpu.0) == gpu);
            let values: Vec<f64> = own.filter_map(|reading| part(&reading.metered)).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64 / 100.0)
        };
        let of = |(gpu, uuid): (usize, &String)| GpuActivity {
            uuid: uuid.clone(),
            activity: [
                mean(gpu, |all| all.sm_active),
                mean(gpu, |all| all.sm_occupancy),
                mean(gpu, |all| all.dram_active),
            ],
            gr_active: mean(gpu, |all| all.gr_active),
        };
        let all = self.uuids.iter().enumerate().map(of);
        Ok(all.filter(|gpu| gpu.activity[0].is_some()).collect())
    }
}

impl Drop for Dcgm {
    fn drop(&mut self) {
        // It may be gone already. A killed process is waited for without delay.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(
    out: impl BufRead,
    err: Option<impl Read>,
    gpus: &[(u32, GpuIndex)],
    now: &impl Fn() -> Nanos,
    to: &Sender<Said>,
) {
    let mut odd = String::new();
    for line in out.lines().map_while(Result::ok) {
        match row(&line) {
            Some((number, metered)) => {
                let Some((_, gpu)) = gpus.iter().find(|(known, _)| *known == number) else { continue };
                let reading = Reading { t: now(), gpu: *gpu, metered, ..Reading::default() };
                if to.send(Said::Reading(Box::new(reading))).is_err() {
                    return;
                }
            }
            None if odd.is_empty() && !line.trim_start().starts_with(['#', 'I']) => odd = line,
            None => {}
        }
    }
    if odd.trim().is_empty() {
        let mut text = String::new();
        // What cannot be read is not quoted.
        let _ = err.map(|err| err.take(4096).read_to_string(&mut text));
        odd = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned();
    }
    let why = if odd.trim().is_empty() { "it ended".to_owned() } else { odd.trim().to_owned() };
    let _ = to.send(Said::Ended(why));
}

/// A line such as `GPU 0     0.998        0.512        N/A          0.310        1.000`: shares of one.
fn row(line: &str) -> Option<(u32, Metered)> {
    let mut words = line.split_ascii_whitespace();
    if words.next()? != "GPU" {
        return None;
    }
    let number = words.next()?.parse().ok()?;
    let mut share = || words.next().and_then(|word| word.parse::<f64>().ok()).map(|share| share * 100.0);
    let metered = Metered {
        meter: Meter::Dcgm,
        sm_active: share(),
        sm_occupancy: share(),
        tensor_active: share(),
        dram_active: share(),
        gr_active: share(),
    };
    Some((number, metered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_others_are_not() {
        let (number, metered) =
            row("    GPU 1     0.500        0.250        N/A          0.125        1.000   ").unwrap();
        assert_eq!(number, 1);
        assert_eq!((metered.sm_active, metered.sm_occupancy), (Some(50.0), Some(25.0)));
        assert_eq!((metered.tensor_active, metered.dram_active), (None, Some(12.5)));
        assert_eq!(metered.gr_active, Some(100.0));
        for line in ["", "#Entity   SMACT        SMOCC", "ID", "GPU", "GPU x 0.5", "GPU-I 0 0.1"] {
            assert_eq!(row(line), None, "{line}");
        }
    }

    fn tool(script: &str) -> (tempfile::TempDir, DcgmSource) {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dcgmi");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (dir, DcgmSource::Tool(path))
    }

    fn until_said(dcgm: &mut Dcgm) -> (Vec<Reading>, Option<String>) {
        loop {
            let (readings, ended) = dcgm.readings();
            if !readings.is_empty() || ended.is_some() {
                return (readings, ended);
            }
            thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    #[test]
    fn the_tools_lines_become_readings_of_the_jobs_gpus() {
        let (_dir, source) = tool(
            "[ \"$*\" = 'dmon -e 1002,1003,1004,1005,1001 -d 500 -i 2' ] || exit 3\n\
             echo '#Entity   SMACT  SMOCC  TENSO  DRAMA'\necho 'ID'\necho 'GPU 7 1 1 1 1'\n\
             echo 'GPU 2 0.5 0.25 0.1 0.2'\nexec sleep 60",
        );
        let mut dcgm = Dcgm::start(&source, vec![(2, GpuIndex(0))], || Nanos(7)).ok().unwrap();
        let (readings, ended) = until_said(&mut dcgm);
        assert_eq!(ended, None);
        assert_eq!((readings.len(), readings[0].gpu, readings[0].t), (1, GpuIndex(0), Nanos(7)));
        assert_eq!(readings[0].metered.sm_active, Some(50.0));
        // Dropped while the tool would go on for a minute: no thread waits for it.
    }

    #[test]
    fn why_there_is_nothing_is_said() {
        let start = |source: &DcgmSource| Dcgm::start(source, vec![(0, GpuIndex(0))], || Nanos(0));
        assert_eq!(
            start(&DcgmSource::Tool("/none/dcgmi".into())).err().unwrap().to_string(),
            "there is no dcgmi"
        );
        let (_dir, source) = tool("echo 'Error: unable to connect to the host engine'; exit 1");
        let (readings, ended) = until_said(&mut start(&source).ok().unwrap());
        assert!(readings.is_empty());
        assert_eq!(ended.unwrap(), "Error: unable to connect to the host engine");
    }
}
