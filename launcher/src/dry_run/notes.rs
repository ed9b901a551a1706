//! Notes that the program's processes wrote down: lines of `kind`, process, number and words.

use std::fs;
use std::path::Path;

use serde::Deserialize;

/// Figures of a framework's allocator on one device.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub struct FrameworkDevice {
    /// Device as the process numbers it.
    pub device: u32,
    /// UUID, which identifies the GPU of the machine.
    pub uuid: String,
    /// Bytes of tensors at the peak of the phase.
    pub allocated: u64,
    /// Bytes that the allocator held at the peak of the phase.
    pub reserved: u64,
    /// Times that it gave its cache back to go on.
    pub retries: u64,
    /// Times that memory did not suffice.
    pub out_of_memory: u64,
}

/// Figures of a framework's allocator in a phase, up to a moment.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub struct Framework {
    /// `PyTorch`, `JAX`, `CuPy`.
    pub framework: String,
    /// `load`, `first step` or `steady`; `end` where phases are not distinguished.
    pub phase: String,
    /// True if it was written as the process ended.
    #[serde(default, rename = "final")]
    pub is_final: bool,
    /// Optimizer steps so far.
    pub steps: u64,
    /// Its version.
    pub version: String,
    /// Its allocator: `native`, `cudaMallocAsync`...
    pub allocator: String,
    /// By device.
    pub devices: Vec<FrameworkDevice>,
    /// The process's peak of host memory so far, bytes.
    #[serde(default)]
    pub resident: u64,
}

impl Framework {
    /// Takes over what was larger before.
    pub fn keep_peaks_of(&mut self, before: &Self) {
        for earlier in &before.devices {
            match self.devices.iter_mut().find(|device| device.uuid == earlier.uuid) {
                Some(device) => {
                    device.allocated = device.allocated.max(earlier.allocated);
                    device.reserved = device.reserved.max(earlier.reserved);
                }
                None => self.devices.push(earlier.clone()),
            }
        }
        self.resident = self.resident.max(before.resident);
    }
}

/// A step whose operators were traced.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Traced {
    /// File of the trace, beside the notes.
    pub trace: String,
    /// Number of the step, from 1.
    pub step: u64,
    /// True if matrix products in single precision may use TF32.
    pub tf32_products: bool,
    /// True if convolutions in single precision may use TF32.
    pub tf32_convolutions: bool,
    /// True if functions of the program were compiled: their kernels are no operators.
    pub compiled: bool,
    /// True if the step replayed CUDA graphs.
    pub graphs: bool,
    /// True if the step changed to another stream.
    pub streams: bool,
    /// Device as the process numbers it.
    #[serde(skip)]
    pub device: u32,
}

/// Subject of a note.
#[derive(Clone, Debug, PartialEq)]
pub enum Matter {
    /// A call without semantics, and how often it was made at least.
    Missing(u64),
    /// A size that comes from a model, bytes.
    Guess(u64),
    /// A size that depends on data, and how often it was filled in at least.
    Fill(u64),
    /// Calls for which a library would launch kernels of its own, and how many were made at least.
    LibraryCall(u64),
    /// Requests to ranks that do not run, and how often they were made at least.
    Answered(u64),
    /// The rank of the process in a large job.
    Rank(u32),
    /// A process of this run uses the GPU.
    Process,
    /// The allocator's figures.
    Framework(Framework),
    /// The work of one optimizer step.
    Work(Traced),
    /// Reason that the work of a step is not known.
    NoWork,
    /// CPU time of a step that was not traced, ns.
    HostTime(u64),
    /// A remark of the Python side.
    Remark,
    /// Reason that figures would be wrong if no framework's are there.
    Withhold,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// Process.
    pub pid: u32,
    /// Subject of the note.
    pub matter: Matter,
    /// In words.
    pub words: String,
}

/// Reads the notes. A line that was cut off by a full disk is left out.
#[must_use]
pub fn read(file: &Path) -> Vec<Note> {
    fs::read_to_string(file).unwrap_or_default().lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Note> {
    let mut fields = line.splitn(4, '\t');
    let (kind, pid, number, words) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let number: u64 = number.parse().ok()?;
    let matter = match kind {
        "missing" => Matter::Missing(number),
        "guess" => Matter::Guess(number),
        "fill" => Matter::Fill(number),
        "call" => Matter::LibraryCall(number),
        "answered" => Matter::Answered(number),
        "rank" => Matter::Rank(u32::try_from(number).ok()?),
        "process" => Matter::Process,
        "framework" => Matter::Framework(serde_json::from_str(words).ok()?),
        "work" => {
            Matter::Work(Traced { device: u32::try_from(number).ok()?, ..serde_json::from_str(words).ok()? })
        }
        "no-work" => Matter::NoWork,
        "host-time" => Matter::HostTime(number),
        "remark" => Matter::Remark,
        "withhold" => Matter::Withhold,
        _ => return None,
    };
    Some(Note { pid: pid.parse().ok()?, matter, words: words.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_broken_ones_left_out() {
        let note = parse("missing\t12\t100\tcufftXtMalloc").unwrap();
        assert_eq!(note, Note { pid: 12, matter: Matter::Missing(100), words: "cufftXtMalloc".to_owned() });
        for broken in ["", "missing\t12", "missing\tx\t1\ty", "other\t1\t1\ty", "framework\t1\t0\t{\"pha"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn figures_of_the_allocator_are_read() {
        let line = r#"framework	7	0	{"framework":"PyTorch","phase":"load","final":true,"steps":0,"version":"2.15.0","allocator":"native","devices":[{"device":0,"uuid":"u","allocated":5,"reserved":9,"retries":0,"out_of_memory":0}]}"#;
        let Some(Note { matter: Matter::Framework(own), .. }) = parse(line) else { panic!("{line}") };
        assert_eq!((own.devices[0].allocated, own.devices[0].reserved), (5, 9));
    }
}
