//! Difference between two groups of runs, by call stack.
//!
//! The stacks of both groups are laid over each other from the outside in. A frame is the same where function, file and line
//! are. Lines move when code above them is edited, so a frame that one side has and the other has not is the same too where
//! it is the only such frame of its function there and here; it then bears the line after the change.

use super::Flame;
use super::frames::{FrameLabel, Origin};
use super::lines::site_of;
use radrm_profile::Bytes;
use radrm_profile::model::GpuIndex;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Memory of a program on one GPU at the peak, before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlameDifference {
    /// The program, without directories.
    pub program: String,
    /// The GPU.
    pub gpu: GpuIndex,
    /// Largest change first. The sums are the peaks of the program's processes; of several runs their mean.
    pub stacks: Vec<StackDifference>,
}

/// One stack before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackDifference {
    /// Outermost first, with lines as they are after the change.
    pub frames: Vec<FrameLabel>,
    /// Held before.
    pub before: Bytes,
    /// Held after.
    pub after: Bytes,
}

/// Memory held from one line, before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LineDifference {
    /// The GPU.
    pub gpu: u8,
    /// The program, without directories.
    pub program: String,
    /// The innermost frame of the program's own code.
    pub site: String,
    /// Held at the peak before.
    pub before_bytes: Bytes,
    /// Held at the peak after.
    pub after_bytes: Bytes,
}

impl LineDifference {
    fn change(&self) -> u64 {
        self.before_bytes.0.abs_diff(self.after_bytes.0)
    }
}

impl FlameDifference {
    /// Compares the stacks at the peak of runs, at least one on each side.
    pub fn all(before: &[Vec<Flame>], after: &[Vec<Flame>]) -> Vec<Self> {
        let (before, after) = (Side::new(before), Side::new(after));
        let places: BTreeSet<_> = before.trees.keys().chain(after.trees.keys()).collect();
        let difference = |(program, gpu): &(String, GpuIndex)| {
            let nothing = Node::default();
            let of = |side: &Side| side.trees.get(&(program.clone(), *gpu)).cloned().unwrap_or_default();
            let (old, new) = (of(&before), of(&after));
            let mut stacks = Vec::new();
            let mut walk = Walk { runs: [before.runs, after.runs], frames: Vec::new(), stacks: &mut stacks };
            walk.merge(&old, &new, &nothing);
            stacks.sort_by(|a, b| {
                let change = |stack: &StackDifference| stack.before.0.abs_diff(stack.after.0);
                change(b).cmp(&change(a)).then_with(|| a.frames.cmp(&b.frames))
            });
            Self { program: program.clone(), gpu: *gpu, stacks }
        };
        places.into_iter().map(difference).collect()
    }

    /// Totals before and after.
    pub fn totals(&self) -> (Bytes, Bytes) {
        let sum = |of: fn(&StackDifference) -> Bytes| {
            Bytes(self.stacks.iter().map(|stack| of(stack).0).fold(0, u64::saturating_add))
        };
        (sum(|stack| stack.before), sum(|stack| stack.after))
    }

    /// The lines whose figure changed, largest change first.
    pub fn lines(&self) -> Vec<LineDifference> {
        let mut lines = BTreeMap::<String, LineDifference>::new();
        for stack in &self.stacks {
            let site = site_of(&stack.frames);
            let line = lines.entry(site.clone()).or_insert_with(|| LineDifference {
                gpu: self.gpu.0,
                program: self.program.clone(),
                site,
                before_bytes: Bytes::ZERO,
                after_bytes: Bytes::ZERO,
            });
            line.before_bytes = Bytes(line.before_bytes.0.saturating_add(stack.before.0));
            line.after_bytes = Bytes(line.after_bytes.0.saturating_add(stack.after.0));
        }
        let mut lines: Vec<_> = lines.into_values().filter(|line| line.change() > 0).collect();
        lines.sort_by(|a, b| b.change().cmp(&a.change()).then_with(|| a.site.cmp(&b.site)));
        lines
    }
}

/// The runs of one side, by program and GPU.
struct Side {
    runs: u64,
    trees: BTreeMap<(String, GpuIndex), Node>,
}

/// Memory held below a frame.
#[derive(Clone, Debug, Default)]
struct Node {
    own: u64,
    below: BTreeMap<FrameLabel, Node>,
}

impl Side {
    fn new(runs: &[Vec<Flame>]) -> Self {
        let mut trees = BTreeMap::<(String, GpuIndex), Node>::new();
        for flame in runs.iter().flatten() {
            let root = trees.entry((flame.program.clone(), flame.gpu)).or_default();
            for stack in &flame.stacks {
                let node = stack
                    .frames
                    .iter()
                    .fold(&mut *root, |node, frame| node.below.entry(frame.clone()).or_default());
                node.own = node.own.saturating_add(stack.bytes.0);
            }
        }
        Self { runs: runs.len().max(1) as u64, trees }
    }
}

/// Laying one tree over another.
struct Walk<'a> {
    runs: [u64; 2],
    frames: Vec<FrameLabel>,
    stacks: &'a mut Vec<StackDifference>,
}

impl Walk<'_> {
    fn merge(&mut self, old: &Node, new: &Node, nothing: &Node) {
        let (before, after) = (old.own / self.runs[0], new.own / self.runs[1]);
        if before > 0 || after > 0 {
            let frames = self.frames.clone();
            self.stacks.push(StackDifference { frames, before: Bytes(before), after: Bytes(after) });
        }
        let moved = moved(old, new);
        for (label, new) in &new.below {
            let was = moved.get(label).copied().unwrap_or(label);
            self.step(label, old.below.get(was).unwrap_or(nothing), new, nothing);
        }
        let taken: BTreeSet<&FrameLabel> = moved.values().copied().collect();
        for (label, old) in &old.below {
            if !new.below.contains_key(label) && !taken.contains(label) {
                self.step(label, old, nothing, nothing);
            }
        }
    }

    fn step(&mut self, label: &FrameLabel, old: &Node, new: &Node, nothing: &Node) {
        self.frames.push(label.clone());
        self.merge(old, new, nothing);
        self.frames.pop();
    }
}

/// Frames that only the new side has, with the frames of other lines of their functions that only the old side has.
fn moved<'a>(old: &'a Node, new: &'a Node) -> BTreeMap<&'a FrameLabel, &'a FrameLabel> {
    type Function<'a> = (Origin, &'a str, Option<&'a str>);
    fn alone<'a>(of: &'a Node, other: &Node) -> BTreeMap<Function<'a>, Vec<&'a FrameLabel>> {
        let mut found = BTreeMap::<Function<'a>, Vec<&'a FrameLabel>>::new();
        for label in of.below.keys().filter(|label| !other.below.contains_key(label)) {
            let function = (label.origin, label.function.as_str(), label.short_file());
            found.entry(function).or_default().push(label);
        }
        found
    }
    let (before, after) = (alone(old, new), alone(new, old));
    let pairs =
        after.into_iter().filter_map(|(function, new)| match (&new[..], &before.get(&function)?[..]) {
            ([new], [old]) => Some((*new, *old)),
            _ => None,
        });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::super::FlameStack;
    use super::*;

    fn frame(function: &str, line: u32) -> FrameLabel {
        FrameLabel {
            origin: Origin::Interpreted,
            function: function.into(),
            file: Some("/home/u/train.py".into()),
            line: Some(line),
            is_installed: false,
        }
    }

    fn flame(stacks: &[(&[(&str, u32)], u64)]) -> Flame {
        let stack = |(frames, bytes): &(&[(&str, u32)], u64)| FlameStack {
            frames: frames.iter().map(|(function, line)| frame(function, *line)).collect(),
            bytes: Bytes(*bytes),
        };
        Flame {
            pid: Some(7),
            program: "python3".into(),
            gpu: GpuIndex(0),
            stacks: stacks.iter().map(stack).collect(),
        }
    }

    fn shown(before: &[Vec<Flame>], after: &[Vec<Flame>]) -> Vec<String> {
        let all = FlameDifference::all(before, after);
        let line = |line: LineDifference| {
            format!("{}: {} -> {}", line.site, line.before_bytes.0, line.after_bytes.0)
        };
        all.iter().flat_map(FlameDifference::lines).map(line).collect()
    }

    #[test]
    fn a_line_that_moved_is_the_same_line() {
        let before = flame(&[(&[("main", 3), ("make", 10)], 700), (&[("main", 4), ("free", 20)], 50)]);
        let after = flame(&[(&[("main", 5), ("make", 12)], 900), (&[("main", 4), ("free", 20)], 50)]);
        assert_eq!(shown(&[vec![before]], &[vec![after]]), ["make (train.py:12): 700 -> 900"]);
    }

    #[test]
    fn two_lines_of_one_function_are_not_mistaken_for_each_other() {
        let before = flame(&[(&[("main", 3)], 100), (&[("main", 4)], 200)]);
        let after = flame(&[(&[("main", 4)], 200), (&[("main", 5)], 100), (&[("main", 6)], 9)]);
        assert_eq!(
            shown(&[vec![before]], &[vec![after]]),
            ["main (train.py:3): 100 -> 0", "main (train.py:5): 0 -> 100", "main (train.py:6): 0 -> 9"]
        );
    }

    #[test]
    fn both_sides_add_up_to_their_peaks_and_runs_to_their_mean() {
        let before = flame(&[(&[("main", 3)], 100), (&[("main", 3), ("a", 9)], 11)]);
        let after = flame(&[(&[("main", 3), ("b", 9)], 60)]);
        let only = FlameDifference::all(&[vec![before.clone()]], &[vec![after.clone()]]);
        assert_eq!(only[0].totals(), (Bytes(111), Bytes(60)));
        let twice = FlameDifference::all(&[vec![before.clone()], vec![before]], &[vec![after], vec![]]);
        assert_eq!(twice[0].totals(), (Bytes(111), Bytes(30)), "a run without the program holds nothing");
    }

    #[test]
    fn programs_and_gpus_stand_apart() {
        let other = Flame { gpu: GpuIndex(1), ..flame(&[(&[("main", 3)], 5)]) };
        let all = FlameDifference::all(&[vec![flame(&[(&[("main", 3)], 5)])]], &[vec![other]]);
        let totals: Vec<_> = all.iter().map(|one| (one.gpu.0, one.totals())).collect();
        assert_eq!(totals, [(0, (Bytes(5), Bytes::ZERO)), (1, (Bytes::ZERO, Bytes(5)))]);
    }
}
