//! Tensors as stacks: of lines, or of modules in each other.

use crate::model::stacks::{Flame, FlameStack, FrameLabel, Origin, is_installed};
use radrm_profile::model::{
    GpuTensors, Process, Profile, StackCode, TensorHolder, TensorModule, TensorStack,
};
use std::collections::BTreeMap;

/// Meaning of the frames of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorsBy {
    /// The Python stack that asked for them.
    Lines,
    /// The modules that they belong to, outermost first.
    Modules,
}

/// Calls of modules that only pass on to the next.
const PASSED_OVER: [&str; 3] = ["_call_impl", "_wrapped_call_impl", "inner"];

/// The tensors of a profile as stacks, of each process and GPU. The innermost frame is the category. `all_frames`: also
/// frames that say nothing of the program.
pub fn tensor_flames(profile: &Profile, by: TensorsBy, all_frames: bool) -> Vec<Flame> {
    let flame = |(process, of): (&Process, &GpuTensors)| {
        let mut sums = BTreeMap::new();
        for holder in &of.holders {
            let frames = frames(of, holder, by, all_frames);
            let sum: &mut u64 = sums.entry(frames).or_default();
            *sum = sum.saturating_add(holder.bytes.0);
        }
        let mut stacks: Vec<FlameStack> = sums
            .into_iter()
            .map(|(frames, bytes)| FlameStack { frames, bytes: radrm_profile::Bytes(bytes) })
            .collect();
        stacks.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.frames.cmp(&b.frames)));
        let program = process.identity.exe.rsplit('/').next().unwrap_or_default().to_owned();
        Flame { pid: Some(process.identity.pid), program, gpu: of.gpu, stacks }
    };
    holders(profile).map(flame).filter(|flame| !flame.stacks.is_empty()).collect()
}

/// Recorded tensors, by process and GPU.
fn holders(profile: &Profile) -> impl Iterator<Item = (&Process, &GpuTensors)> {
    let with_tensors =
        profile.processes.iter().filter_map(|process| Some((process, process.tensors.as_ref()?)));
    with_tensors.flat_map(|(process, tensors)| tensors.gpus.iter().map(move |of| (process, of)))
}

fn frames(of: &GpuTensors, holder: &TensorHolder, by: TensorsBy, all_frames: bool) -> Vec<FrameLabel> {
    let mut frames = match by {
        TensorsBy::Lines => lines(of, holder, all_frames),
        TensorsBy::Modules => modules(module(of, holder)),
    };
    frames.push(FrameLabel::note(format!("[{}]", holder.category.label())));
    frames
}

/// The module of a holder.
pub(super) fn module<'a>(of: &'a GpuTensors, holder: &TensorHolder) -> Option<&'a TensorModule> {
    of.modules.get(usize::try_from(holder.module?).ok()?)
}

/// The Python stack, outermost first.
pub(super) fn lines(of: &GpuTensors, holder: &TensorHolder, all_frames: bool) -> Vec<FrameLabel> {
    let named =
        holder.frames.iter().rev().filter_map(|(code, line)| Some((of.codes.get(*code as usize)?, *line)));
    let label = |(code, line): (&StackCode, u32)| FrameLabel {
        origin: Origin::Interpreted,
        function: code.name.clone(),
        file: Some(code.file.clone()),
        line: (line > 0).then_some(line),
        is_installed: is_installed(&code.file),
    };
    let kept = |(code, _): &(&StackCode, u32)| all_frames || !passes_on(code);
    let labels: Vec<FrameLabel> = named.filter(kept).map(label).collect();
    let none = match holder.stack {
        TensorStack::NotRecorded => "[stack not recorded]",
        TensorStack::Own | TensorStack::EqualStep => "[no Python frames]",
    };
    if labels.is_empty() { vec![FrameLabel::note(none)] } else { labels }
}

/// Returns true if a function only calls the next one, which has the informative name.
fn passes_on(code: &StackCode) -> bool {
    code.file.starts_with("<frozen ")
        || (code.file.ends_with("/torch/nn/modules/module.py") && PASSED_OVER.contains(&code.name.as_str()))
}

/// A module behind those that it lies in, each with its whole path.
fn modules(module: Option<&TensorModule>) -> Vec<FrameLabel> {
    let Some(module) = module else { return vec![FrameLabel::note("[outside of modules]")] };
    let ends = module.path.match_indices('.').map(|(at, _)| at).chain([module.path.len()]);
    let parts = ends.filter_map(|end| module.path.get(..end)).filter(|path| !path.is_empty());
    [module.model.as_str()].into_iter().chain(parts).map(FrameLabel::note).collect()
}
