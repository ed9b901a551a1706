//! Work of PyTorch's operators on a GPU, by their names and the shapes of their tensors.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use radrm_clock::{Operands, Precision, Shape, Work};

use super::trace::{Argument, Node, Tensor, Trace};

/// Classes of operators, and their names.
const TABLE: &str = include_str!("../../../data/operators.tsv");

/// A class, with places of arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Class {
    Free,
    Composite,
    Gemm(usize, usize),
    Convolution,
    ConvolutionBackward,
    Attention { backward: bool, query: usize, key: usize, causal: usize },
    Pointwise,
    Write,
    Copy,
    Norm { measured: bool },
    NormBackward,
    Softmax { backward: bool },
    Reduction,
    Moved,
    Gather,
    Each,
    Optimizer,
}

static CLASSES: LazyLock<HashMap<&'static str, Class>> = LazyLock::new(|| {
    let mut classes = HashMap::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let Some((class, names)) = line.split_once('\t') else { continue };
        if let Some(class) = parse(class) {
            classes.extend(names.split(' ').map(|name| (name, class)));
        }
    }
    classes
});

fn parse(text: &str) -> Option<Class> {
    let mut words = text.split(' ');
    let name = words.next()?;
    let places: Vec<usize> = words.filter_map(|word| word.parse().ok()).collect();
    Some(match (name, places.as_slice()) {
        ("free", []) => Class::Free,
        ("composite", []) => Class::Composite,
        ("gemm", [a, b]) => Class::Gemm(*a, *b),
        ("convolution", []) => Class::Convolution,
        ("convolution-backward", []) => Class::ConvolutionBackward,
        ("attention" | "attention-backward", [query, key, causal]) => {
            let (query, key, causal) = (*query, *key, *causal);
            Class::Attention { backward: name == "attention-backward", query, key, causal }
        }
        ("pointwise", []) => Class::Pointwise,
        ("write", []) => Class::Write,
        ("copy", []) => Class::Copy,
        ("norm", []) => Class::Norm { measured: true },
        ("norm-other", []) => Class::Norm { measured: false },
        ("norm-backward", []) => Class::NormBackward,
        ("softmax", []) => Class::Softmax { backward: false },
        ("softmax-backward", []) => Class::Softmax { backward: true },
        ("reduction", []) => Class::Reduction,
        ("moved", []) => Class::Moved,
        ("gather", []) => Class::Gather,
        ("each", []) => Class::Each,
        ("each-first-and-moments", []) => Class::Optimizer,
        _ => return None,
    })
}

/// An operation with known work.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Kind as reports show it: that of the work, or a backward pass and the like of it.
    pub kind: &'static str,
    /// The work. Single precision may be TF32 where the card has it and `tf32` is set.
    pub work: Work,
    /// True if operations of this form were measured; else the time is assumed.
    pub measured: bool,
    /// True if it is a product or convolution of numbers in single precision, for which programs allow TF32 or not.
    pub single: bool,
}

/// Work of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Operations with known work.
    pub known: Vec<Known>,
    /// Operations whose work is unknown, by operator.
    pub unknown: BTreeMap<String, u64>,
}

/// Work of all operators of a trace that use a GPU.
#[must_use]
pub fn work(trace: &Trace) -> Found {
    let mut found = Found::default();
    let mut visits: Vec<Visit> = Vec::new();
    for root in &trace.roots {
        visits.push(Visit::enter(*root));
        // No recursion: a program can write traces of any depth.
        while let Some(visit) = visits.last_mut() {
            let node = &trace.nodes[visit.place];
            if visit.next == 0 {
                match own(node) {
                    Own::Nothing => {
                        visits.pop();
                        continue;
                    }
                    Own::Work(known) => {
                        found.known.extend(known);
                        finish(&mut visits, true);
                        continue;
                    }
                    Own::OfChildren => {}
                }
            }
            if let Some(child) = node.children.get(visit.next) {
                visit.next += 1;
                visits.push(Visit::enter(*child));
                continue;
            }
            // One that no line has may do more than those that it calls: it is unknown in any case.
            let is_unknown = is_operator(&node.name)
                && class(&node.name).is_none_or(|class| class != Class::Composite && !visit.has_work);
            if is_unknown {
                *found.unknown.entry(node.name.clone()).or_default() += 1;
            }
            let has_work = visit.has_work || is_unknown;
            finish(&mut visits, has_work);
        }
    }
    found
}

/// An operator whose children are being looked at.
struct Visit {
    place: usize,
    next: usize,
    has_work: bool,
}

impl Visit {
    fn enter(place: usize) -> Self {
        Self { place, next: 0, has_work: false }
    }
}

/// Leaves an operator; its caller then has work too.
fn finish(visits: &mut Vec<Visit>, has_work: bool) {
    visits.pop();
    if let Some(caller) = visits.last_mut() {
        caller.has_work |= has_work;
    }
}

/// Work of an operator itself.
enum Own {
    /// Nothing on a GPU, and neither do those that it calls.
    Nothing,
    /// This, and no more is done by those that it calls.
    Work(Vec<Known>),
    /// The work of those that it calls, and its own, which is unknown unless the table has it.
    OfChildren,
}

/// Returns true if a name is that of an operator: ranges of the program and nodes of autograd are none.
fn is_operator(name: &str) -> bool {
    name.split_once("::").is_some_and(|(space, _)| !matches!(space, "autograd" | "torch"))
        && !name.contains(char::is_whitespace)
}

fn class(name: &str) -> Option<Class> {
    let name = name.strip_prefix("aten::")?;
    let in_place = || CLASSES.get(name.strip_suffix('_')?);
    CLASSES.get(name).or_else(in_place).copied()
}

fn own(node: &Node) -> Own {
    if !is_operator(&node.name) {
        return Own::OfChildren;
    }
    let on_gpu = node.tensors().any(|tensor| tensor.on_gpu && tensor.count() > 0.0);
    match class(&node.name) {
        Some(Class::Free) => Own::Nothing,
        Some(Class::Composite) => Own::OfChildren,
        _ if !on_gpu => Own::Nothing,
        None => Own::OfChildren,
        Some(class) => known(class, node).map_or(Own::OfChildren, Own::Work),
    }
}

/// Type for the purposes of time: integers are moved as floats of their size are.
fn precision(tensor: &Tensor) -> Precision {
    tensor.element.float.unwrap_or(match tensor.element.bytes {
        bytes if bytes >= 8.0 => Precision::F64,
        bytes if bytes >= 4.0 => Precision::F32,
        bytes if bytes >= 2.0 => Precision::F16,
        _ => Precision::F8,
    })
}

fn operands(operand: &Tensor, result: &Tensor) -> Operands {
    Operands { result: precision(result), ..Operands::of(precision(operand)) }
}

fn sum(tensors: &[&Tensor]) -> f64 {
    tensors.iter().map(|tensor| tensor.bytes()).sum()
}

fn one(kind: &'static str, work: Work, measured: bool) -> Vec<Known> {
    vec![Known { kind, work, measured, single: false }]
}

/// Work of an operator; `None` if its tensors are not those of its class.
fn known(class: Class, node: &Node) -> Option<Vec<Known>> {
    let on_gpu = |arguments: &'_ [Argument]| -> Vec<Tensor> {
        arguments.iter().flat_map(Argument::tensors).filter(|tensor| tensor.on_gpu).cloned().collect()
    };
    let (inputs, outputs) = (on_gpu(&node.inputs), on_gpu(&node.outputs));
    let (inputs, outputs): (Vec<&Tensor>, Vec<&Tensor>) = (inputs.iter().collect(), outputs.iter().collect());
    let largest =
        |tensors: &[&Tensor]| tensors.iter().copied().max_by(|a, b| a.count().total_cmp(&b.count())).cloned();
    // In place, the first operand is the result.
    let result = largest(&outputs).or_else(|| inputs.first().copied().cloned())?;
    let moved = |kind, shape, read: f64, written: f64, measured| {
        let operand = largest(&inputs).unwrap_or_else(|| result.clone());
        let mut work = Work::of(shape, operands(&operand, &result));
        (work.read, work.written) = (read, written);
        one(kind, work, measured)
    };
    let written = sum(&outputs).max(result.bytes());
    Some(match class {
        Class::Free | Class::Composite => return None,
        Class::Gemm(a, b) => gemm(node.input(a)?, node.input(b)?, &result)?,
        Class::Convolution => {
            let (work, single) = convolution(node.input(0)?, node.input(1)?, &result)?;
            // Measured were kernels of 3 x 3 with a stride of 1.
            let measured = matches!(work.shape, Shape::Convolution { window: 9.0, pixels_in, pixels_out, groups: 1.0, .. }
                if pixels_in == pixels_out);
            vec![Known { kind: "convolution", work, measured, single }]
        }
        Class::ConvolutionBackward => convolution_backward(node)?,
        Class::Attention { backward, query, key, causal } => {
            attention(node.input(query)?, node.input(key)?, node.flag(causal), backward)?
        }
        Class::Pointwise => {
            let inputs: Vec<&Tensor> = inputs.iter().copied().filter(|tensor| tensor.count() > 1.0).collect();
            let elements = result.count();
            let measured = outputs.len() <= 1 && (1..=2).contains(&inputs.len());
            let shape = Shape::Elementwise { elements, inputs: (inputs.len() as f64).max(1.0) };
            moved("elementwise", shape, sum(&inputs), written, measured)
        }
        Class::Write => {
            let shape = Shape::Elementwise { elements: result.count(), inputs: 1.0 };
            moved("write", shape, 0.0, written, false)
        }
        Class::Copy => copy(node)?,
        Class::Norm { measured } => {
            let input = *inputs.first()?;
            let [rows, columns] = rows(input, node.output(1));
            moved("norm", Shape::Norm { rows, columns }, sum(&inputs), written, measured)
        }
        Class::NormBackward => {
            let input = inputs.iter().copied().max_by(|a, b| a.count().total_cmp(&b.count()))?;
            let [rows, columns] = rows(input, None);
            moved("norm-backward", Shape::Norm { rows, columns }, sum(&inputs), written, false)
        }
        Class::Softmax { backward } => {
            let input = *inputs.first()?;
            let columns = input.dim(node.number(if backward { 2 } else { 1 }).unwrap_or(-1));
            let rows = input.count() / columns.max(1.0);
            let kind = if backward { "softmax-backward" } else { "softmax" };
            let measured = !backward && input.element.float == Some(Precision::F32);
            moved(kind, Shape::Softmax { rows, columns }, sum(&inputs), written, measured)
        }
        Class::Reduction => {
            let input = *inputs.first()?;
            let rows = outputs.first().map_or(1.0, |output| output.count()).max(1.0);
            let columns = (input.count() / rows).max(1.0);
            moved("reduction", Shape::Reduction { rows, columns }, sum(&inputs), sum(&outputs), false)
        }
        Class::Moved => {
            let shape = Shape::Copy { bytes: (sum(&inputs) + written).max(1.0) / 2.0 };
            moved("moved", shape, sum(&inputs), written, false)
        }
        Class::Gather => {
            let indices = inputs.iter().filter(|tensor| tensor.element.float.is_none());
            let read = written + indices.map(|tensor| tensor.bytes()).sum::<f64>();
            moved("moved", Shape::Copy { bytes: written.max(1.0) }, read, written, false)
        }
        Class::Each | Class::Optimizer => each(node, class == Class::Optimizer)?,
    })
}

fn gemm(a: &Tensor, b: &Tensor, result: &Tensor) -> Option<Vec<Known>> {
    if a.dims.len() < 2 || b.dims.len() < 2 {
        return None;
    }
    let batch = a.dims[..a.dims.len() - 2].iter().product();
    let shape = Shape::Gemm { batch, m: a.dim(-2), n: b.dim(-1), k: a.dim(-1) };
    let work = Work::of(shape, operands(a, result));
    Some(vec![Known { kind: "gemm", work, measured: true, single: precision(a) == Precision::F32 }])
}

/// A convolution of its input, filter and output; whether its numbers are in single precision.
fn convolution(input: &Tensor, filter: &Tensor, output: &Tensor) -> Option<(Work, bool)> {
    if input.dims.len() < 3 || filter.dims.len() < 3 || output.dims.len() < 3 {
        return None;
    }
    let pixels = |tensor: &Tensor| tensor.dims[2..].iter().product::<f64>();
    let (channels_in, channels_out) = (input.dims[1], output.dims[1]);
    // A transposed convolution has its channels the other way round, and as much arithmetic for each pixel of its input.
    let is_transposed = filter.dims[0] == channels_in
        && (channels_in != channels_out || pixels(output) > pixels(input) * 1.5);
    let groups = match is_transposed {
        true => channels_out / filter.dims[1],
        false => channels_in / filter.dims[1],
    };
    let shape = Shape::Convolution {
        batch: input.dims[0],
        channels_in: if is_transposed { channels_out } else { channels_in },
        channels_out: if is_transposed { channels_in } else { channels_out },
        pixels_in: if is_transposed { pixels(output) } else { pixels(input) },
        pixels_out: if is_transposed { pixels(input) } else { pixels(output) },
        window: pixels(filter),
        groups: groups.max(1.0),
    };
    let mut work = Work::of(shape, operands(input, output));
    (work.read, work.written) = (input.bytes() + filter.bytes(), output.bytes());
    Some((work, precision(input) == Precision::F32))
}

/// Gradients of a convolution: as much arithmetic for each as for the forward pass.
fn convolution_backward(node: &Node) -> Option<Vec<Known>> {
    let (gradient, input, filter) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (work, single) = convolution(input, filter, gradient)?;
    let mut known = Vec::new();
    let kinds = ["convolution-backward", "convolution-backward", "reduction"];
    for (place, kind) in kinds.into_iter().enumerate() {
        let Some(output) = node.output(place).filter(|output| output.on_gpu && output.count() > 0.0) else {
            continue;
        };
        let mut own = work;
        if place == 2 {
            let (rows, columns) = (output.count(), gradient.count() / output.count());
            own = Work::of(Shape::Reduction { rows, columns }, operands(gradient, output));
        }
        let other = [filter.bytes(), input.bytes(), 0.0][place];
        (own.read, own.written) = (gradient.bytes() + other, output.bytes());
        known.push(Known { kind, work: own, measured: false, single: single && place < 2 });
    }
    Some(known)
}

/// Attention of queries and keys with the sizes batch, heads, length, numbers of a head.
fn attention(query: &Tensor, key: &Tensor, causal: bool, backward: bool) -> Option<Vec<Known>> {
    let ([batch, heads, queries, head_dim], [_, kv_heads, keys, _]) = (sizes(query)?, sizes(key)?);
    let shape = match (queries, backward) {
        (1.0, false) => Shape::AttentionDecode { batch, keys, heads, kv_heads, head_dim },
        _ => Shape::AttentionPrefill { batch, queries, keys, heads, kv_heads, head_dim, causal },
    };
    let mut work = Work::of(shape, operands(query, query));
    let measured = !backward && precision(query).bytes() == 2.0;
    if backward {
        // Five products instead of two, as scores are computed again; gradients beside each tensor.
        work.flop *= 2.5;
        (work.read, work.written) = (2.0 * work.read + 2.0 * work.written, work.read);
    }
    let kind = if backward { "attention-backward" } else { "attention" };
    Some(vec![Known { kind, work, measured, single: false }])
}

fn sizes(tensor: &Tensor) -> Option<[f64; 4]> {
    tensor.dims.as_slice().try_into().ok()
}

fn copy(node: &Node) -> Option<Vec<Known>> {
    if let (Argument::List(to), Argument::List(from)) = (node.inputs.first()?, node.inputs.get(1)?) {
        let (from, to): (Vec<&Tensor>, Vec<&Tensor>) = (from.iter().collect(), to.iter().collect());
        return Some(passes("copy", &from, &to, 1.0));
    }
    let (to, from) = (node.input(0)?, node.input(1)?);
    if to.on_gpu != from.on_gpu {
        let bytes = from.bytes().max(1.0);
        return Some(one("host-copy", Work::of(Shape::HostCopy { bytes }, operands(from, to)), false));
    }
    let shape = Shape::Elementwise { elements: to.count(), inputs: 1.0 };
    let mut work = Work::of(shape, operands(from, to));
    (work.read, work.written) = (from.bytes(), to.bytes());
    Some(one("copy", work, true))
}

/// Rows and columns that are normalised: as many rows as there are means, or by the last dimension.
fn rows(input: &Tensor, means: Option<&Tensor>) -> [f64; 2] {
    let by_last = input.count() / input.dim(-1).max(1.0);
    let rows = means.map(Tensor::count).filter(|rows| *rows >= 1.0).unwrap_or(by_last).max(1.0);
    [rows, (input.count() / rows).max(1.0)]
}

/// Operators of lists of tensors. In place they write their first list, optimizers also their moments.
fn each(node: &Node, is_optimizer: bool) -> Option<Vec<Known>> {
    let lists: Vec<&[Tensor]> = node
        .inputs
        .iter()
        .filter_map(|argument| match argument {
            Argument::List(tensors) if tensors[0].on_gpu => Some(tensors.as_slice()),
            _ => None,
        })
        .collect();
    let first = *lists.first()?;
    let read: Vec<&Tensor> = lists.iter().copied().flatten().filter(|tensor| tensor.count() > 1.0).collect();
    let results: Vec<&Tensor> =
        node.outputs.iter().flat_map(Argument::tensors).filter(|tensor| tensor.on_gpu).collect();
    let in_place: Vec<&Tensor> = match is_optimizer {
        true => {
            lists.iter().enumerate().filter(|(place, _)| *place != 1).flat_map(|(_, list)| *list).collect()
        }
        false => first.iter().collect(),
    };
    let writes = if node.name.ends_with('_') || results.is_empty() { in_place } else { results };
    Some(passes(if is_optimizer { "optimizer" } else { "foreach" }, &read, &writes, lists.len() as f64))
}

/// One pass over lists of tensors.
fn passes(kind: &'static str, read: &[&Tensor], written: &[&Tensor], lists: f64) -> Vec<Known> {
    let Some(first) = read.first().or(written.first()) else { return Vec::new() };
    let of_lists: f64 = read.iter().map(|tensor| tensor.count()).sum();
    let elements = (of_lists / lists.max(1.0)).max(1.0).round();
    let mut work = Work::of(Shape::Elementwise { elements, inputs: lists.max(1.0) }, operands(first, first));
    (work.read, work.written) = (sum(read), sum(written));
    one(kind, work, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dry_run::work::trace::Element;
    use serde_json::Value;

    fn tensor(dims: &[f64], float: Precision) -> Tensor {
        Tensor {
            dims: dims.to_vec(),
            element: Element { bytes: float.bytes(), float: Some(float) },
            on_gpu: true,
        }
    }

    fn node(name: &str, inputs: Vec<Argument>, outputs: Vec<Tensor>) -> Node {
        let outputs = outputs.into_iter().map(Argument::Tensor).collect();
        Node { name: name.to_owned(), inputs, outputs, children: Vec::new() }
    }

    fn found(nodes: Vec<Node>) -> Found {
        let roots = (0..nodes.len()).collect();
        work(&Trace { nodes, roots })
    }

    #[test]
    fn every_line_of_the_table_is_understood_and_no_name_stands_twice() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        let mut names = 0;
        for line in lines {
            let (class, own) = line.split_once('\t').unwrap();
            assert!(parse(class).is_some(), "{class}");
            names += own.split(' ').count();
        }
        assert_eq!(CLASSES.len(), names);
    }

    #[test]
    fn a_product_has_the_flop_of_its_sizes() {
        let (a, b) = (tensor(&[4.0, 3.0, 5.0], Precision::Bf16), tensor(&[4.0, 5.0, 7.0], Precision::Bf16));
        let out = tensor(&[4.0, 3.0, 7.0], Precision::Bf16);
        let found = found(vec![node("aten::bmm", vec![Argument::Tensor(a), Argument::Tensor(b)], vec![out])]);
        assert_eq!(found.known[0].work.flop, 2.0 * 4.0 * 3.0 * 5.0 * 7.0);
        assert_eq!(found.known[0].work.bytes(), 2.0 * 4.0 * (15.0 + 35.0 + 21.0));
    }

    #[test]
    fn both_gradients_of_a_strided_convolution_cost_a_forward_pass_each() {
        let (x, w) =
            (tensor(&[2.0, 3.0, 8.0, 8.0], Precision::F32), tensor(&[5.0, 3.0, 3.0, 3.0], Precision::F32));
        let y = tensor(&[2.0, 5.0, 4.0, 4.0], Precision::F32);
        let arguments = [y, x.clone(), w.clone()].map(Argument::Tensor).to_vec();
        let found = found(vec![node("aten::convolution_backward", arguments, vec![x, w])]);
        let flop: Vec<f64> = found.known.iter().map(|known| known.work.flop).collect();
        assert_eq!(flop, [2.0 * 2.0 * 16.0 * 5.0 * 27.0; 2]);
        assert!(found.known.iter().all(|known| known.single && !known.measured));
    }

    #[test]
    fn an_operator_in_place_reads_and_writes_its_first_operand() {
        let (a, b) = (tensor(&[100.0], Precision::F32), tensor(&[100.0], Precision::F32));
        let arguments = vec![Argument::Tensor(a.clone()), Argument::Tensor(b)];
        let found = found(vec![node("aten::add_", arguments, vec![a])]);
        assert_eq!((found.known[0].work.read, found.known[0].work.written), (800.0, 400.0));
    }

    #[test]
    fn what_no_line_names_is_unknown_and_counted() {
        let a = tensor(&[100.0], Precision::F32);
        let of = |name: &str, on_gpu| {
            let a = Tensor { on_gpu, ..a.clone() };
            node(name, vec![Argument::Tensor(a.clone())], vec![a])
        };
        let mut outer = of("aten::outer_of_others", true);
        outer.children = vec![4];
        let mut composite = of("aten::linear", true);
        composite.children = vec![4];
        let trace = Trace {
            nodes: vec![
                of("aten::fancy", true),
                of("aten::fancy", false),
                of("aten::view", true),
                outer,
                of("my::kernel", true),
                composite,
            ],
            roots: vec![0, 1, 2, 3, 5],
        };
        let found = work(&trace);
        assert_eq!(found.known, []);
        let unknown: Vec<_> = found.unknown.into_iter().collect();
        let counts = [("aten::fancy", 1), ("aten::outer_of_others", 1), ("my::kernel", 2)];
        assert_eq!(unknown, counts.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn a_copy_from_the_host_is_told_from_one_on_the_card() {
        let (on, off) =
            (tensor(&[8.0], Precision::F32), Tensor { on_gpu: false, ..tensor(&[8.0], Precision::F32) });
        let kind = |from: Tensor| {
            let arguments = vec![
                Argument::Tensor(on.clone()),
                Argument::Tensor(from),
                Argument::Other(Value::Bool(false)),
            ];
            found(vec![node("aten::copy_", arguments, vec![on.clone()])]).known[0].kind
        };
        assert_eq!((kind(on.clone()), kind(off)), ("copy", "host-copy"));
    }
}
