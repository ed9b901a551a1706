//! Memory holders in a framework's allocator at its peak: by category, by module and by line.

mod flames;
mod sums;

pub use flames::{TensorsBy, tensor_flames};
pub use sums::{GpuTensorsSummary, TensorsSummary, module_label};

pub(crate) use sums::parts;
pub(super) use sums::summaries;

#[cfg(test)]
pub(crate) use tests::profile as profile_with_tensors;

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::Bytes;
    use radrm_profile::model::{
        GpuIndex, GpuTensors, Job, Process, Profile, StackCode, TensorCategory, TensorHolder, TensorModule,
        TensorStack, Tensors,
    };

    pub(crate) fn profile() -> Profile {
        let holder = |category, module, frames: &[(u32, u32)], bytes| TensorHolder {
            category,
            module,
            frames: frames.to_vec(),
            bytes: Bytes(bytes),
            blocks: 1,
            ..TensorHolder::default()
        };
        let code = |file: &str, name: &str| StackCode { file: file.into(), name: name.into() };
        let module = |path: &str| TensorModule { model: "Net".into(), path: path.into() };
        let gpu = GpuTensors {
            gpu: GpuIndex(0),
            allocated: Bytes(1000),
            cached: Bytes(48),
            codes: vec![
                code("/home/u/train.py", "<module>"),
                code("/v/lib/python3.11/site-packages/torch/nn/modules/module.py", "_call_impl"),
                code("/v/lib/python3.11/site-packages/torch/nn/modules/linear.py", "forward"),
            ],
            modules: vec![module("layers.0"), module("")],
            holders: vec![
                holder(TensorCategory::Activations, Some(0), &[(2, 134), (1, 9), (0, 7)], 600),
                holder(TensorCategory::Parameters, Some(0), &[(0, 3)], 300),
                holder(TensorCategory::Activations, Some(1), &[(0, 7)], 60),
                holder(TensorCategory::Other, None, &[], 40),
            ],
            ..GpuTensors::default()
        };
        let mut process = Process::default();
        process.identity.exe = "/usr/bin/python3".into();
        process.tensors =
            Some(Tensors { framework: "PyTorch 2".into(), gpus: vec![gpu], ..Tensors::default() });
        let mut profile = Profile::new(Job::default());
        profile.processes.push(process);
        profile
    }

    #[test]
    fn categories_modules_and_lines_each_add_up_to_the_peak() {
        let summary = summaries(&profile()).remove(0);
        let gpu = &summary.gpus[0];
        let categories: Vec<_> = gpu.categories.iter().map(|of| (of.category.label(), of.bytes.0)).collect();
        assert_eq!(categories, [("activations", 660), ("parameters", 300), ("other tensors", 40)]);
        let modules: Vec<_> = gpu.modules.iter().map(|of| (of.module.as_deref(), of.bytes.0)).collect();
        assert_eq!(modules, [(Some("layers.0"), 900), (Some(""), 60), (None, 40)]);
        let lines: Vec<_> = gpu.lines.iter().map(|of| (of.site.as_str(), of.bytes.0)).collect();
        assert_eq!(
            lines,
            [("<module> (train.py:7)", 660), ("<module> (train.py:3)", 300), ("[no Python frames]", 40)]
        );
    }

    #[test]
    fn bytes_are_told_apart_by_whose_stack_they_have() {
        let mut profile = profile();
        let sentence = |profile: &Profile| summaries(profile)[0].gpus[0].whose_stacks();
        assert_eq!(sentence(&profile).as_deref(), Some("stacks: 1000 B of their own requests"));
        let holders = &mut profile.processes[0].tensors.as_mut().unwrap().gpus[0].holders;
        holders[1].stack = TensorStack::EqualStep;
        holders[3].stack = TensorStack::NotRecorded;
        assert_eq!(
            sentence(&profile).as_deref(),
            Some(
                "stacks: 660 B of their own requests, 300 B of equal blocks of an earlier step, 40 B not recorded"
            )
        );
        let lines = crate::folded(&tensor_flames(&profile, TensorsBy::Lines, false));
        assert!(lines.contains("[stack not recorded];[other tensors] 40"), "{lines}");
        profile.processes[0].tensors.as_mut().unwrap().gpus[0].holders.clear();
        assert_eq!(sentence(&profile), None);
    }

    #[test]
    fn stacks_by_line_and_by_module_end_in_the_category() {
        let folded = |by, all| crate::folded(&tensor_flames(&profile(), by, all));
        assert_eq!(
            folded(TensorsBy::Lines, false),
            "<module> (train.py:7);forward (torch/nn/modules/linear.py:134);[activations] 600\n\
             <module> (train.py:3);[parameters] 300\n\
             <module> (train.py:7);[activations] 60\n\
             [no Python frames];[other tensors] 40\n"
        );
        assert!(folded(TensorsBy::Lines, true).contains("_call_impl (torch/nn/modules/module.py:9)"));
        assert_eq!(
            folded(TensorsBy::Modules, false),
            "Net;layers;layers.0;[activations] 600\n\
             Net;layers;layers.0;[parameters] 300\n\
             Net;[activations] 60\n\
             [outside of modules];[other tensors] 40\n"
        );
    }
}
