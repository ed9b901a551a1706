//! Work of one optimizer step of a dry run, and the time that it is predicted to take on cards.
//!
//! PyTorch's own trace of its operators has the shapes, types and devices of all that a step computes, those of the backward
//! pass included. Calls of libraries and launches have less: a kernel's parameters are bytes without a meaning, and the sizes of
//! a reduction or of attention stand in structures that differ from version to version.
//!
//! | module | is |
//! |---|---|
//! | [`trace`] | the file of a trace |
//! | [`attention`] | what attention keeps for the backward pass |
//! | [`operators`] | the work of its operators |
//! | [`predict`] | the time of that work |

mod attention;
pub mod operators;
pub mod predict;
pub mod trace;

use std::path::Path;

use radrm_clock::Clock;
use radrm_emulator_machine::Machine;
use radrm_profile::model::PredictedStep;

use super::notes::{Matter, Note};

/// Work and predicted time of the step that was traced, of the process that takes longest; and what is to be remarked, beside a
/// peak of so many bytes of tensors on a GPU.
#[must_use]
pub fn step(
    notes: &[Note],
    folder: &Path,
    machine: Option<&Machine>,
    peak: u64,
) -> (Option<PredictedStep>, Vec<String>) {
    let mut remarks: Vec<String> = notes
        .iter()
        .filter(|note| note.matter == Matter::NoWork)
        .map(|note| format!("no time of a step: {}", note.words))
        .collect();
    let traced: Vec<_> = notes
        .iter()
        .filter_map(|note| match &note.matter {
            Matter::Work(traced) => Some((note.pid, traced)),
            _ => None,
        })
        .collect();
    let (Some(machine), false) = (machine, traced.is_empty()) else { return (None, remarks) };
    let clock = match Clock::shipped() {
        Ok(clock) => clock,
        Err(error) => {
            remarks.push(format!("no time of a step: {error}"));
            return (None, remarks);
        }
    };
    let mut steps = Vec::new();
    for (pid, traced) in traced {
        // The name is the program's: it names a file in this folder and no other.
        let Some(name) = Path::new(&traced.trace).file_name() else { continue };
        let found = match trace::read(&folder.join(name)) {
            Ok(trace) => {
                // Of several processes with equal steps it is one.
                let found = attention::sentence(&trace, peak).filter(|found| !remarks.contains(found));
                remarks.extend(found);
                operators::work(&trace)
            }
            Err(why) => {
                remarks.push(format!("no time of a step: the trace of its operators cannot be read: {why}"));
                continue;
            }
        };
        let Some(gpu) = machine.gpu(traced.device as usize).or_else(|| machine.gpu(0)) else { continue };
        let host = notes.iter().filter_map(|own| match own.matter {
            Matter::HostTime(ns) if own.pid == pid => Some(ns),
            _ => None,
        });
        // Libraries of a debug build take longer than a driver would: that is no lower end.
        let host = host.min().filter(|_| !cfg!(debug_assertions)).map(|ns| ns as f64 / 1e9);
        steps.extend(predict::step(&clock, &found, traced, host, gpu));
    }
    let processes = steps.len() as u64;
    let time = |step: &PredictedStep| step.on(&step.card).map_or(0.0, |time| time.gpu_seconds[0]);
    let longest = steps.into_iter().max_by(|a, b| time(a).total_cmp(&time(b)));
    (longest.map(|step| PredictedStep { processes, ..step }), remarks)
}
