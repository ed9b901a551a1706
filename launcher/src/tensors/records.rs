//! Records from the processes' files for the profile.

use std::collections::BTreeMap;

use radrm_profile::model::{
    Gpu, GpuIndex, GpuTensors, Process, StackCode, TensorCategory, TensorHolder, TensorModule, TensorStack,
    Tensors,
};
use radrm_profile::{Bytes, Profile, Record};

use super::figures::{Device, Figures};
use crate::dry_run::outcome::same_uuid;

/// Reason that a process left no file.
const NO_FILE: &str = "it used neither PyTorch nor JAX";
/// Reason that a process left no file that has loaded one of them.
const NO_FIGURES: &str =
    "wrote no figures: it was not used, the process ended before, or its Python ignores PYTHONPATH";
/// Frameworks whose tensors are recorded, by the names that profiles have for them.
const RECORDED: [&str; 2] = ["PyTorch", "JAX"];

/// A record for each process that used a GPU.
pub fn records(profile: &Profile, found: &BTreeMap<u32, Figures>) -> Vec<Record> {
    let used = profile.processes.iter().filter(|process| !process.state.accounts.is_empty());
    used.map(|process| Record::Tensors(Box::new(tensors(profile, process, found)))).collect()
}

fn tensors(profile: &Profile, process: &Process, found: &BTreeMap<u32, Figures>) -> Tensors {
    let pid = process.identity.pid;
    // A file is that of the last program of its process.
    let is_last = profile.processes.iter().rfind(|other| other.identity.pid == pid).map(|other| other.key)
        == Some(process.key);
    let key = process.key;
    let Some(figures) = found.get(&pid).filter(|_| is_last) else {
        let loaded = process.state.frameworks.iter().find(|of| RECORDED.contains(&of.name.as_str()));
        let why = loaded.map_or_else(|| NO_FILE.to_owned(), |of| format!("{} {NO_FIGURES}", of.name));
        return Tensors { key, missing: Some(why), ..Tensors::default() };
    };
    let gpus: Vec<GpuTensors> = figures
        .devices
        .iter()
        .filter_map(|device| Some(of_gpu(gpu_of(&profile.gpus, process, device)?, device)))
        .collect();
    let unplaced = figures.missing.is_none() && gpus.is_empty();
    Tensors {
        key,
        framework: figures.framework.clone(),
        missing: unplaced
            .then(|| "its GPUs are not those of the profile".to_owned())
            .or(figures.missing.clone()),
        remarks: figures.remarks.clone(),
        gpus,
    }
}

/// The GPU of a device: by its UUID, else the only one that the process used.
fn gpu_of(gpus: &[Gpu], process: &Process, device: &Device) -> Option<GpuIndex> {
    let named = gpus.iter().find(|gpu| !device.uuid.is_empty() && same_uuid(&device.uuid, &gpu.uuid));
    match (named, &process.state.accounts[..]) {
        (Some(gpu), _) => Some(gpu.index),
        (None, [only]) => Some(only.gpu),
        _ => None,
    }
}

fn of_gpu(gpu: GpuIndex, device: &Device) -> GpuTensors {
    let (codes, modules) = (device.codes.len() as u32, device.modules.len() as i64);
    let mut holders: Vec<TensorHolder> = device
        .rows
        .iter()
        .map(|(category, module, frames, bytes, blocks, stack)| TensorHolder {
            category: *category,
            module: (0..modules).contains(module).then(|| module.unsigned_abs() as u32),
            frames: frames.iter().copied().filter(|(code, _)| *code < codes).collect(),
            bytes: Bytes(*bytes),
            blocks: *blocks,
            stack: *stack,
        })
        .collect();
    let listed = holders.iter().map(|holder| holder.bytes.0).fold(0, u64::saturating_add);
    if listed < device.allocated {
        holders.push(TensorHolder {
            category: TensorCategory::Unknown,
            bytes: Bytes(device.allocated - listed),
            stack: TensorStack::NotRecorded,
            ..TensorHolder::default()
        });
    }
    let code = |(file, name): &(String, String)| StackCode { file: file.clone(), name: name.clone() };
    let module = |(model, path): &(String, String)| TensorModule { model: model.clone(), path: path.clone() };
    GpuTensors {
        gpu,
        moment: device.moment,
        allocated: Bytes(device.allocated.max(listed)),
        peak: device.peak.map(Bytes),
        cached: Bytes(device.reserved.saturating_sub(device.allocated)),
        codes: device.codes.iter().map(code).collect(),
        modules: device.modules.iter().map(module).collect(),
        holders,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::{Account, Framework, Job};

    fn profile() -> Profile {
        let mut profile = Profile::new(Job::default());
        profile.gpus.push(Gpu { index: GpuIndex(2), uuid: "GPU-ab-cd".into(), ..Gpu::default() });
        let mut process = Process::default();
        process.identity.pid = 7;
        process.state.accounts.push(Account { gpu: GpuIndex(2), ..Account::default() });
        profile.processes.push(process);
        profile
    }

    fn recorded(found: &BTreeMap<u32, Figures>) -> Tensors {
        let mut profile = profile();
        records(&profile, found).into_iter().for_each(|record| profile.apply(record));
        profile.processes.remove(0).tensors.unwrap()
    }

    #[test]
    fn what_is_not_listed_is_unknown_and_numbers_that_lead_nowhere_are_left_out() {
        let device = Device {
            uuid: "AB-CD".into(),
            allocated: 1000,
            reserved: 4000,
            codes: vec![("/a.py".into(), "f".into())],
            modules: vec![("Net".into(), "a".into())],
            rows: vec![(TensorCategory::Parameters, 0, vec![(0, 7), (9, 1)], 600, 2, TensorStack::Own)],
            ..Device::default()
        };
        let figures = Figures { framework: "PyTorch".into(), devices: vec![device], ..Figures::default() };
        let tensors = recorded(&BTreeMap::from([(7, figures)]));
        let gpu = &tensors.gpus[0];
        assert_eq!(
            (gpu.gpu, gpu.allocated, gpu.held(), gpu.cached),
            (GpuIndex(2), Bytes(1000), Bytes(1000), Bytes(3000))
        );
        assert_eq!((gpu.holders[0].module, &gpu.holders[0].frames[..]), (Some(0), &[(0, 7)][..]));
        assert_eq!((gpu.holders[1].category, gpu.holders[1].bytes), (TensorCategory::Unknown, Bytes(400)));
    }

    #[test]
    fn a_process_without_a_file_has_a_reason() {
        let tensors = recorded(&BTreeMap::new());
        assert_eq!((tensors.missing.as_deref(), tensors.gpus.len()), (Some(NO_FILE), 0));
        let mut profile = profile();
        profile.processes[0].state.frameworks =
            ["CUDA runtime", "JAX"].map(|name| Framework { name: name.into(), version: None }).to_vec();
        let Record::Tensors(of) = records(&profile, &BTreeMap::new()).remove(0) else { panic!() };
        assert!(of.missing.as_deref().is_some_and(|why| why.starts_with("JAX wrote no figures")), "{of:?}");
    }
}
