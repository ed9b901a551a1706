//! Call stacks as the page's script draws them: trees of frames, and figures of their leaves. Numbers and texts of a page are
//! limited; stacks that find no room are added up in one, so that sums stay what they are.

use crate::model::stacks::{FrameLabel, Origin};
use radrm_profile::{Bytes, Nanos};
use radrm_text::clean;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Nodes of the trees of a page.
const NODES: usize = 12_000;

/// Bytes of the names in a page.
const TEXT: usize = 160_000;

/// Bytes of a name that are kept: templates of C++ have names of kilobytes.
const NAME: usize = 240;

/// All that the script draws.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Flames {
    /// Short and whole path.
    files: Vec<(String, String)>,
    /// Function, number of the file or -1, line or 0, and 0 for an interpreter's, 1 for native code, 2 for a remark.
    frames: Vec<(String, i32, u32, u8)>,
    pub(crate) graphs: Vec<Graph>,
}

/// One tree.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Graph {
    /// Name of the whole tree.
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) tree: Tree,
    /// Of each leaf the row of the table of lines, or -1.
    pub(crate) line: Vec<i32>,
    pub(crate) views: Vec<View>,
    /// Moments that an interval can choose from, by time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) moments: Vec<MomentView>,
}

/// Frames before those that they called; without a node for the whole.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Tree {
    depth: Vec<u32>,
    frame: Vec<u32>,
    /// Nodes that stacks end in.
    leaf: Vec<u32>,
    /// Of each stack its leaf.
    #[serde(skip)]
    leaf_of: Vec<usize>,
    /// The leaf of those that found no room.
    #[serde(skip)]
    left_out: Option<usize>,
}

/// Figures of one kind, by leaf.
#[derive(Debug, Default, Serialize)]
pub(crate) struct View {
    pub(crate) id: &'static str,
    /// As in "held at the peak".
    pub(crate) label: String,
    /// `bytes` or `requests`.
    pub(crate) unit: &'static str,
    pub(crate) values: Vec<u64>,
    /// Values before the change, if two groups of runs are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Vec<u64>>,
    /// Time of the moment, us, if the view is of one moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) t: Option<u64>,
}

/// Memory at one moment, by leaf, as the difference from the moment before.
#[derive(Debug, Default, Serialize)]
pub(crate) struct MomentView {
    pub(crate) t: u64,
    pub(crate) is_peak: bool,
    pub(crate) values: Vec<i64>,
}

impl Tree {
    /// Figures of stacks as figures of leaves.
    pub(crate) fn values(&self, of_stack: impl Fn(usize) -> u64) -> Vec<u64> {
        let mut values = vec![0u64; self.leaf.len()];
        for (stack, leaf) in self.leaf_of.iter().enumerate() {
            values[*leaf] = values[*leaf].saturating_add(of_stack(stack));
        }
        values
    }

    /// Of each leaf what its first stack has.
    pub(crate) fn lines(&self, of_stack: impl Fn(usize) -> Option<usize>) -> Vec<i32> {
        let mut lines = vec![-1; self.leaf.len()];
        // Those that found no room are of several lines.
        let own = self.leaf_of.iter().enumerate().filter(|(_, leaf)| self.left_out != Some(**leaf));
        for (stack, leaf) in own {
            if let (-1, Some(line)) = (lines[*leaf], of_stack(stack)) {
                lines[*leaf] = i32::try_from(line).unwrap_or(-1);
            }
        }
        lines
    }

    pub(crate) fn leaves(&self) -> usize {
        self.leaf.len()
    }
}

/// Makes the trees of a page.
#[derive(Default)]
pub(crate) struct Builder {
    flames: Flames,
    known: HashMap<FrameLabel, u32>,
    files: HashMap<String, i32>,
    nodes: usize,
    text: usize,
}

/// A frame below another, while a tree grows.
#[derive(Default)]
struct Node {
    frame: u32,
    weight: u64,
    below: BTreeMap<u32, usize>,
    is_leaf: bool,
}

impl Builder {
    /// The tree of stacks, each with its weight: those with the most find room first, and stand first.
    pub(crate) fn tree(&mut self, stacks: &[(&[FrameLabel], u64)]) -> Tree {
        let mut nodes = vec![Node::default()];
        let mut order: Vec<usize> = (0..stacks.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(stacks[*at].1));
        let mut node_of = vec![0; stacks.len()];
        let (mut left_out, mut rest) = (Vec::new(), None);
        for at in order {
            let (frames, weight) = stacks[at];
            match self.has_room(frames) {
                true => node_of[at] = self.grow(&mut nodes, frames, weight),
                false => left_out.push(at),
            }
        }
        if !left_out.is_empty() {
            let note = [FrameLabel::note(format!("[{} smaller stacks]", left_out.len()))];
            let weight = left_out.iter().map(|at| stacks[*at].1).fold(0, u64::saturating_add);
            let node = self.grow(&mut nodes, &note, weight);
            left_out.into_iter().for_each(|at| node_of[at] = node);
            rest = Some(node);
        }
        let mut tree = Tree::default();
        let mut leaf_of_node = HashMap::new();
        // In order of depth-first visits, the heaviest child first.
        let mut waiting = vec![(0usize, 0u32)];
        while let Some((at, depth)) = waiting.pop() {
            let node = &nodes[at];
            if at > 0 {
                tree.depth.push(depth - 1);
                tree.frame.push(node.frame);
                if node.is_leaf {
                    leaf_of_node.insert(at, tree.leaf.len());
                    tree.leaf.push(tree.depth.len() as u32 - 1);
                }
            }
            let mut below: Vec<usize> = node.below.values().copied().collect();
            below.sort_by_key(|at| nodes[*at].weight);
            waiting.extend(below.into_iter().map(|at| (at, depth + 1)));
        }
        tree.leaf_of = node_of.iter().map(|node| leaf_of_node.get(node).copied().unwrap_or(0)).collect();
        tree.left_out = rest.and_then(|node| leaf_of_node.get(&node).copied());
        tree
    }

    /// Adds a tree that is complete.
    pub(crate) fn add(&mut self, graph: Graph) {
        self.flames.graphs.push(graph);
    }

    pub(crate) fn finish(self) -> Flames {
        self.flames
    }

    fn has_room(&self, frames: &[FrameLabel]) -> bool {
        let new = frames.iter().filter(|frame| !self.known.contains_key(*frame));
        let text: usize = new.map(|frame| frame.function.len().min(NAME) + 16).sum();
        self.text + text <= TEXT && self.nodes + frames.len() <= NODES
    }

    fn grow(&mut self, nodes: &mut Vec<Node>, frames: &[FrameLabel], weight: u64) -> usize {
        let mut at = 0;
        for frame in frames {
            let frame = self.frame(frame);
            let next = nodes.len();
            let below = *nodes[at].below.entry(frame).or_insert(next);
            if below == next {
                nodes.push(Node { frame, ..Node::default() });
                self.nodes += 1;
            }
            at = below;
            nodes[at].weight = nodes[at].weight.saturating_add(weight);
        }
        nodes[at].is_leaf = true;
        at
    }

    fn frame(&mut self, label: &FrameLabel) -> u32 {
        if let Some(number) = self.known.get(label) {
            return *number;
        }
        let file = label.file.as_deref().map_or(-1, |path| self.file(label, path));
        let origin = match label.origin {
            Origin::Interpreted => 0,
            Origin::Native => 1,
            Origin::Note => 2,
        };
        let number = self.flames.frames.len() as u32;
        let name = cut(&clean(&label.function));
        self.text += name.len() + 16;
        self.flames.frames.push((name, file, label.line.unwrap_or(0), origin));
        self.known.insert(label.clone(), number);
        number
    }

    fn file(&mut self, label: &FrameLabel, path: &str) -> i32 {
        if let Some(number) = self.files.get(path) {
            return *number;
        }
        let number = self.flames.files.len() as i32;
        let short = clean(label.short_file().unwrap_or_default()).into_owned();
        let whole = cut(&clean(path));
        self.text += short.len() + whole.len();
        self.flames.files.push((short, whole));
        self.files.insert(path.to_owned(), number);
        number
    }
}

/// A name of at most [`NAME`] bytes.
fn cut(name: &str) -> String {
    match name.len() > NAME {
        true => format!("{}…", &name[..name.floor_char_boundary(NAME)]),
        false => name.to_owned(),
    }
}

/// As a number of the script, which are exact up to 2^53.
pub(crate) fn number(bytes: Bytes) -> u64 {
    bytes.0.min(1 << 53)
}

/// A time as the script has it.
pub(crate) const fn micros(t: Nanos) -> u64 {
    t.0 / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str) -> FrameLabel {
        FrameLabel { origin: Origin::Native, ..FrameLabel::note(function) }
    }

    fn stacks(of: &[(&str, u64)]) -> Vec<(Vec<FrameLabel>, u64)> {
        of.iter().map(|(frames, weight)| (frames.split(';').map(frame).collect(), *weight)).collect()
    }

    fn tree(builder: &mut Builder, stacks: &[(Vec<FrameLabel>, u64)]) -> Tree {
        let stacks: Vec<_> = stacks.iter().map(|(frames, weight)| (&frames[..], *weight)).collect();
        builder.tree(&stacks)
    }

    #[test]
    fn frames_stand_before_what_they_called_and_the_heaviest_first() {
        let mut builder = Builder::default();
        let stacks = stacks(&[("main;small", 1), ("main;big;inner", 70), ("main", 5), ("other", 9)]);
        let tree = tree(&mut builder, &stacks);
        let flames = builder.finish();
        let shown: Vec<String> = tree
            .depth
            .iter()
            .zip(&tree.frame)
            .map(|(depth, frame)| format!("{depth} {}", flames.frames[*frame as usize].0))
            .collect();
        assert_eq!(shown, ["0 main", "1 big", "2 inner", "1 small", "0 other"]);
        assert_eq!(tree.leaf, [0, 2, 3, 4]);
        assert_eq!(tree.values(|stack| stacks[stack].1), [5, 70, 1, 9]);
        assert_eq!(tree.lines(|stack| (stack > 0).then_some(stack)), [2, 1, -1, 3]);
    }

    #[test]
    fn stacks_that_find_no_room_keep_the_sum() {
        let mut builder = Builder::default();
        let name =
            |number: u64| vec![frame("main"), frame(&format!("{}{number}", "f".repeat(200))), frame("g")];
        let stacks: Vec<_> = (0..5000).map(|number| (name(number), 1 + number)).collect();
        let tree = tree(&mut builder, &stacks);
        let values = tree.values(|stack| stacks[stack].1);
        assert_eq!(values.iter().sum::<u64>(), 5000 * 5001 / 2);
        assert!(tree.leaves() < 5000 && tree.depth.len() <= NODES, "{}", tree.leaves());
        let flames = builder.finish();
        let text: usize = flames.frames.iter().map(|frame| frame.0.len()).sum();
        assert!(text <= TEXT, "{text}");
        assert!(flames.frames.iter().any(|frame| frame.0.ends_with("smaller stacks]")));
        // The largest are those that found room.
        assert_eq!(values.iter().filter(|value| **value == 5000).count(), 1);
        // What is left out is of no one line.
        let lines = tree.lines(Some);
        assert_eq!(lines.iter().filter(|line| **line == -1).count(), 1);
    }

    #[test]
    fn a_name_is_cut_at_a_character() {
        let name = "é".repeat(400);
        assert!(cut(&name).ends_with("é…") && cut(&name).len() < 250);
    }
}
