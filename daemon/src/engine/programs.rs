//! Programs of jobs: the names by which their runs are found.

use radrm_collector::dataset::{ProgramKey, program_name};
use radrm_protocol::spec::Spec;
use radrm_scheduler_core::Program;

use crate::store::Entry;

/// Key of the program that a job runs, without the batch size: equal for runs that differ in that only.
pub(super) fn program(spec: &Spec) -> ProgramKey {
    ProgramKey::of(&spec.command, &spec.cwd, spec.gpus.into())
}

/// The program of an entry, as one that shares GPUs.
pub(super) fn program_of(entry: &Entry) -> (String, Program) {
    let name = program_name(program(&entry.spec).as_str(), entry.spec.batch_size());
    let number = Program::named(&name);
    (name, number)
}
