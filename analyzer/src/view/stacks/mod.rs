//! Call stacks for other tools.

mod folded;
mod heap_profile;
mod pprof;
mod wire;

pub use folded::folded;
pub use heap_profile::heap_profile;
pub use pprof::pprof;

use crate::model::stacks::{Flame, FlameStack};

/// Frames that tell the flames of a profile apart: process and GPU, where there are several.
fn prefix(flames: &[Flame], flame: &Flame) -> Vec<String> {
    let mut prefix = Vec::new();
    if let Some(pid) = flame.pid.filter(|_| flames.iter().any(|other| other.pid != flame.pid)) {
        prefix.push(format!("{} (pid {pid})", flame.program));
    }
    if flames.iter().any(|other| other.gpu != flame.gpu) {
        prefix.push(format!("GPU {}", flame.gpu.0));
    }
    prefix
}

/// The names of a stack, outermost first, behind a prefix.
fn names(prefix: &[String], stack: &FlameStack) -> Vec<String> {
    prefix.iter().cloned().chain(stack.frames.iter().map(ToString::to_string)).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::stacks::{FrameLabel, Origin};
    use radrm_profile::Bytes;
    use radrm_profile::model::GpuIndex;

    pub(super) fn flame(pid: u32, gpu: u8) -> Flame {
        let frame = |function: &str, line| FrameLabel {
            origin: Origin::Native,
            function: function.into(),
            file: Some("/src/a.cpp".into()),
            line: Some(line),
            is_installed: false,
        };
        let stack = |frames, bytes| FlameStack { frames, bytes: Bytes(bytes) };
        Flame {
            pid: Some(pid),
            program: "train".into(),
            gpu: GpuIndex(gpu),
            stacks: vec![
                stack(vec![frame("main", 3), frame("a;b\nc", 5)], 700),
                stack(vec![frame("main", 4)], 1),
            ],
        }
    }

    #[test]
    fn processes_and_gpus_are_named_only_where_there_are_several() {
        let one = [flame(7, 0)];
        assert_eq!(prefix(&one, &one[0]), Vec::<String>::new());
        let gpus = [flame(7, 0), flame(7, 1)];
        assert_eq!(prefix(&gpus, &gpus[1]), ["GPU 1"]);
        let processes = [flame(7, 0), flame(8, 0)];
        assert_eq!(prefix(&processes, &processes[1]), ["train (pid 8)"]);
    }
}
