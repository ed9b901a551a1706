//! PyTorch's trace of its operators (ExecutionTraceObserver): a tree of operators with their arguments.
//!
//! A program can write this file, so its size and its depth are limited.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use radrm_clock::Precision;
use serde::Deserialize;
use serde_json::Value;

/// Largest trace that is read, bytes.
const MAX_FILE: u64 = 256 << 20;

/// A trace as it stands in the file.
#[derive(Deserialize)]
struct Written {
    nodes: Vec<WrittenNode>,
}

#[derive(Deserialize)]
struct WrittenNode {
    id: u64,
    name: String,
    ctrl_deps: u64,
    #[serde(default)]
    inputs: WrittenValues,
    #[serde(default)]
    outputs: WrittenValues,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenValues {
    values: Vec<Value>,
    shapes: Vec<Value>,
    types: Vec<String>,
}

/// Type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Element {
    /// Bytes of an element.
    pub bytes: f64,
    /// Type if it is a float.
    pub float: Option<Precision>,
}

/// A tensor that an operator takes or returns.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Sizes.
    pub dims: Vec<f64>,
    /// Type of its elements.
    pub element: Element,
    /// True if it lies on a GPU.
    pub on_gpu: bool,
}

impl Tensor {
    /// Number of elements.
    pub fn count(&self) -> f64 {
        self.dims.iter().product()
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> f64 {
        self.count() * self.element.bytes
    }

    /// Size of a dimension, counted from the last one if the number is negative; 1 if there is none.
    pub fn dim(&self, number: i64) -> f64 {
        let len = i64::try_from(self.dims.len()).unwrap_or(0);
        let at = if number < 0 { number + len } else { number };
        usize::try_from(at).ok().and_then(|at| self.dims.get(at)).copied().unwrap_or(1.0)
    }
}

/// Argument or result of an operator.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A tensor.
    Tensor(Tensor),
    /// A list of tensors.
    List(Vec<Tensor>),
    /// Anything else.
    Other(Value),
}

impl Argument {
    /// Its tensors.
    pub fn tensors(&self) -> &[Tensor] {
        match self {
            Self::Tensor(tensor) => std::slice::from_ref(tensor),
            Self::List(tensors) => tensors,
            Self::Other(_) => &[],
        }
    }
}

/// An operator that was called.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name, such as `aten::addmm`.
    pub name: String,
    /// Arguments in their order.
    pub inputs: Vec<Argument>,
    /// Results in their order.
    pub outputs: Vec<Argument>,
    /// Operators that it called, as places in the list of all.
    pub children: Vec<usize>,
}

impl Node {
    /// All tensors that it takes or returns.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs.iter().chain(&self.outputs).flat_map(Argument::tensors)
    }

    /// The tensor at a place of the arguments.
    pub fn input(&self, place: usize) -> Option<&Tensor> {
        match self.inputs.get(place)? {
            Argument::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The tensor at a place of the results.
    pub fn output(&self, place: usize) -> Option<&Tensor> {
        match self.outputs.get(place)? {
            Argument::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Returns true if the argument at a place is a true flag.
    pub fn flag(&self, place: usize) -> bool {
        matches!(self.inputs.get(place), Some(Argument::Other(Value::Bool(true))))
    }

    /// The number at a place of the arguments.
    pub fn number(&self, place: usize) -> Option<i64> {
        match self.inputs.get(place)? {
            Argument::Other(value) => value.as_i64(),
            _ => None,
        }
    }
}

/// The operators of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// All, a caller before what it called.
    pub nodes: Vec<Node>,
    /// Those that no other one called, as places.
    pub roots: Vec<usize>,
}

/// Reads the file of a trace.
///
/// # Errors
/// Why it cannot be read, as a clause.
pub fn read(path: &Path) -> Result<Trace, String> {
    let file = File::open(path).map_err(|error| radrm_base::reason(&error).to_string())?;
    let length = file.metadata().map_err(|error| radrm_base::reason(&error).to_string())?.len();
    if length > MAX_FILE {
        return Err(format!("it has {} MiB", length >> 20));
    }
    parse(BufReader::new(file.take(MAX_FILE)))
}

fn parse(text: impl Read) -> Result<Trace, String> {
    let written: Written = serde_json::from_reader(text).map_err(|error| error.to_string())?;
    let mut written = written.nodes;
    // Numbers are given when an operator begins: a caller has a smaller one than what it called.
    written.sort_by_key(|node| node.id);
    let places: HashMap<u64, usize> =
        written.iter().enumerate().map(|(place, node)| (node.id, place)).collect();
    let mut trace = Trace::default();
    for (place, node) in written.into_iter().enumerate() {
        let caller = places.get(&node.ctrl_deps).copied().filter(|caller| *caller < place);
        match caller.and_then(|caller| trace.nodes.get_mut(caller)) {
            Some(caller) => caller.children.push(place),
            None => trace.roots.push(place),
        }
        let (inputs, outputs) = (arguments(node.inputs), arguments(node.outputs));
        trace.nodes.push(Node { name: node.name, inputs, outputs, children: Vec::new() });
    }
    Ok(trace)
}

fn arguments(written: WrittenValues) -> Vec<Argument> {
    let WrittenValues { values, shapes, types } = written;
    let mut shapes = shapes.into_iter();
    let argument = |(value, kind): (Value, String)| {
        let shape = shapes.next().unwrap_or(Value::Null);
        if let Some(list) = kind.strip_prefix("GenericList[") {
            let (Value::Array(values), Value::Array(shapes)) = (&value, &shape) else {
                return Argument::Other(value);
            };
            let kinds = list.trim_end_matches(']').split(',');
            let tensors = kinds.zip(values.iter().zip(shapes));
            let tensors: Vec<Tensor> =
                tensors.filter_map(|(kind, (value, shape))| tensor(kind, value, shape)).collect();
            if !tensors.is_empty() {
                return Argument::List(tensors);
            }
        } else if let Some(tensor) = tensor(&kind, &value, &shape) {
            return Argument::Tensor(tensor);
        }
        Argument::Other(value)
    };
    values.into_iter().zip(types).map(argument).collect()
}

/// A tensor of its type, such as `Tensor(float)`, its value (numbers of tensor, memory, offset, elements, bytes of an
/// element, device) and its shape.
fn tensor(kind: &str, value: &Value, shape: &Value) -> Option<Tensor> {
    let name = kind.trim().strip_prefix("Tensor(")?.trim_end_matches(')');
    let value = value.as_array()?;
    let bytes = value.get(4)?.as_f64()?;
    let device = value.get(5)?.as_str()?;
    let dims = shape.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>()?;
    let has = |part: &str| name.contains(part);
    let float = if has("BFloat16") {
        Some(Precision::Bf16)
    } else if has("Half") {
        Some(Precision::F16)
    } else if has("Float8") {
        Some(Precision::F8)
    } else if name == "double" {
        Some(Precision::F64)
    } else if name == "float" {
        Some(Precision::F32)
    } else {
        None
    };
    Some(Tensor { dims, element: Element { bytes, float }, on_gpu: device.starts_with("cuda") })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as PyTorch 2.15 writes them, without what is not read.
    const TRACE: &str = r#"{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "time": "now", "start_ts": 1, "nodes": [
        {"id": 3, "name": "aten::mm", "ctrl_deps": 2,
         "inputs": {"values": [[4,5,0,32,2,"cuda:0"],[6,7,0,64,2,"cuda:0"]], "shapes": [[4,8],[8,8]],
                    "types": ["Tensor(c10::BFloat16)","Tensor(c10::BFloat16)"], "strides": [[8,1],[1,8]]},
         "outputs": {"values": [[8,9,0,32,2,"cuda:0"]], "shapes": [[4,8]], "types": ["Tensor(c10::BFloat16)"]},
         "attrs": [{"name": "rf_id", "type": "uint64", "value": 2}]},
        {"id": 2, "name": "aten::matmul", "ctrl_deps": 1, "inputs": {"values": [], "shapes": [], "types": []}},
        {"id": 4, "name": "aten::cat", "ctrl_deps": 1,
         "inputs": {"values": [[[4,5,0,32,4,"cpu"],[6,7,0,64,4,"cpu"]], 1], "shapes": [[[4,8],[8,8]],[]],
                    "types": ["GenericList[Tensor(float),Tensor(float)]","Int"]},
         "outputs": {"values": [], "shapes": [], "types": []}}]}"#;

    #[test]
    fn operators_have_their_callers_and_tensors() {
        let trace = parse(TRACE.as_bytes()).unwrap();
        let names: Vec<&str> = trace.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!((names, trace.roots.clone()), (vec!["aten::matmul", "aten::mm", "aten::cat"], vec![0, 2]));
        assert_eq!(trace.nodes[0].children, [1]);
        let product = trace.nodes[1].input(0).unwrap();
        assert_eq!((product.dims.clone(), product.bytes()), (vec![4.0, 8.0], 64.0));
        assert_eq!((product.element.float, product.on_gpu), (Some(Precision::Bf16), true));
        assert_eq!(trace.nodes[2].inputs[0].tensors().len(), 2);
        assert_eq!(trace.nodes[2].number(1), Some(1));
    }

    #[test]
    fn a_trace_that_was_cut_off_is_an_error() {
        assert!(parse(&TRACE.as_bytes()[..400]).is_err());
        assert!(parse(&b"{\"nodes\": [{\"id\": 1, \"name\": \"x\", \"inputs\": []}]}"[..]).is_err());
    }
}
