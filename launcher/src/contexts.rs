//! Context overheads of GPUs, as far as they are known before a job's own processes were measured.

use std::collections::BTreeMap;

use radrm_emulator_machine::{GpuSpec, MachineSpec, Models};
use radrm_limits::contexts::Contexts;

/// Bytes by GPU name: those that earlier jobs of the user showed, else those of the emulated machine, else those that a dry
/// run adds.
pub(crate) fn known(measured: &Contexts, machine: Option<&MachineSpec>) -> BTreeMap<String, u64> {
    let of = |gpu: &GpuSpec| (gpu.name.clone(), gpu.context_bytes());
    let models = Models::known().map(|models| models.gpu).unwrap_or_default();
    let mut known: BTreeMap<String, u64> = models.iter().map(of).collect();
    known.extend(machine.iter().flat_map(|machine| &machine.gpu).map(of));
    known.extend(measured.by_model());
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_context_goes_before_those_of_the_machine_and_the_table() {
        let dir = tempfile::tempdir().unwrap();
        let mut measured = Contexts::load_from(&dir.path().join("contexts.toml"));
        let mut machine = MachineSpec::parse("1xH100-80GB").unwrap();
        let h100 = machine.gpu[0].name.clone();
        let table = known(&measured, None);
        assert!(table.len() > 1 && table[&h100] > 0, "{table:?}");
        machine.gpu[0].context_mib = 100;
        assert_eq!(known(&measured, Some(&machine))[&h100], 100 << 20);
        for (driver, mib) in [("580.1", 330), ("615.2", 350)] {
            measured.learn(&h100, driver, mib << 20);
        }
        assert_eq!(known(&measured, Some(&machine))[&h100], 350 << 20, "the larger of two drivers");
    }
}
