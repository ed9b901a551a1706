//! Descriptors of the graph interface.
//!
//! A descriptor is a kind with attributes: values by number and type, as the caller set them. A few
//! attributes are asked for that were not set: the ways to compute a graph, their engines, their plans' workspaces. A convolution
//! has two ways: the fast one, whose workspace is modelled, and one without a workspace, which callers take where
//! memory does not suffice for the first.

use core::ffi::{c_int, c_void};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use radrm_cuda_abi::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED};
use radrm_emulator_ffi::{Answer, In, Out};

use super::workspace::{self, Direction, Tensor};
use crate::handles::{Registry, library};
use crate::notes;

/// Numbers of `cudnnBackendAttributeType_t`.
mod of_type {
    pub const BACKEND_DESCRIPTOR: i32 = 15;
}

/// Numbers of `cudnnBackendDescriptorType_t`.
mod kind {
    pub const CONVOLUTION_FORWARD: i32 = 10;
    pub const CONVOLUTION_FILTER: i32 = 11;
    pub const CONVOLUTION_DATA: i32 = 12;
    pub const SDPA_BACKWARD: i32 = 43;
}

/// Numbers of `cudnnBackendAttributeName_t`.
mod attribute {
    pub const ENGINEHEUR_OPERATION_GRAPH: i32 = 201;
    pub const ENGINEHEUR_RESULTS: i32 = 202;
    pub const ENGINECFG_ENGINE: i32 = 300;
    pub const ENGINECFG_WORKSPACE_SIZE: i32 = 303;
    pub const ENGINECFG_SHARED_MEMORY_USED: i32 = 304;
    pub const PLAN_ENGINE_CONFIG: i32 = 401;
    pub const PLAN_WORKSPACE_SIZE: i32 = 402;
    pub const PLAN_JSON: i32 = 405;
    pub const GRAPH_OPS: i32 = 801;
    pub const GRAPH_ENGINE_COUNT: i32 = 802;
    pub const TENSOR_DATA_TYPE: i32 = 901;
    pub const TENSOR_DIMENSIONS: i32 = 902;
    pub const TENSOR_STRIDES: i32 = 903;
    pub const ENGINE_OPERATION_GRAPH: i32 = 1300;
    pub const ENGINE_GLOBAL_INDEX: i32 = 1301;
    pub const SDPA_BACKWARD_QUERY: i32 = 2851;
}

/// Input, filter, output of each kind of convolution.
const CONVOLUTIONS: [(i32, Direction, [i32; 3]); 3] = [
    (kind::CONVOLUTION_FORWARD, Direction::Forward, [704, 703, 705]),
    (kind::CONVOLUTION_DATA, Direction::Data, [710, 709, 711]),
    (kind::CONVOLUTION_FILTER, Direction::Filter, [716, 715, 717]),
];

/// A value that a caller set.
#[derive(Clone)]
struct Value {
    kind: i32,
    bytes: Vec<u8>,
    /// Descriptors that its handles named when it was set: callers may destroy them before they are needed.
    descriptors: Vec<Shared>,
}

/// A descriptor.
#[derive(Clone, Default)]
struct Descriptor {
    kind: i32,
    values: HashMap<i32, Value>,
}

type Shared = Arc<Mutex<Descriptor>>;

static DESCRIPTORS: Registry<Shared> = Registry::new();

fn lock(descriptor: &Shared) -> MutexGuard<'_, Descriptor> {
    descriptor.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find(handle: u64) -> Answer<Shared> {
    DESCRIPTORS.with(handle, |own| own.clone())
}

/// Bytes of an element of an attribute type.
fn size_of_type(kind: i32) -> usize {
    match kind {
        // Handles, 64-bit numbers, pointers, descriptors.
        0 | 3 | 5 | 6 | 15 => 8,
        2 | 24 => 1,
        26 => 16,
        _ => 4,
    }
}

impl Descriptor {
    fn first(&self, attribute: i32) -> Option<Shared> {
        self.values.get(&attribute)?.descriptors.first().cloned()
    }

    fn numbers(&self, attribute: i32) -> Vec<i64> {
        let bytes = self.values.get(&attribute).map_or(&[][..], |value| &value.bytes);
        bytes.as_chunks::<8>().0.iter().map(|chunk| i64::from_le_bytes(*chunk)).collect()
    }

    fn tensor(&self, attribute: i32) -> Option<Tensor> {
        let own = self.first(attribute)?;
        let own = lock(&own);
        let data_type = own.values.get(&attribute::TENSOR_DATA_TYPE)?.bytes.first_chunk::<4>()?;
        Some(Tensor {
            dims: own.numbers(attribute::TENSOR_DIMENSIONS),
            strides: own.numbers(attribute::TENSOR_STRIDES),
            data_type: i32::from_le_bytes(*data_type),
        })
    }

    /// Workspace of an operation.
    fn workspace(&self) -> u64 {
        for (kind, direction, [input, filter, output]) in CONVOLUTIONS {
            if self.kind == kind
                && let (Some(x), Some(w), Some(y)) =
                    (self.tensor(input), self.tensor(filter), self.tensor(output))
            {
                let bytes = workspace::convolution(direction, &x, &w, &y);
                notes::guess("workspace of a convolution (cuDNN)", bytes);
                return bytes;
            }
        }
        if self.kind == kind::SDPA_BACKWARD
            && let Some(query) = self.tensor(attribute::SDPA_BACKWARD_QUERY)
        {
            let bytes = workspace::attention_backward(&query);
            notes::guess("workspace of attention's backward pass (cuDNN)", bytes);
            return bytes;
        }
        0
    }

    /// Workspace of all operations of a graph, each in its turn.
    fn graph_workspace(&self) -> u64 {
        let operations = self.values.get(&attribute::GRAPH_OPS);
        operations
            .map_or(&[][..], |value| &value.descriptors)
            .iter()
            .map(|operation| lock(operation).workspace())
            .max()
            .unwrap_or(0)
    }
}

/// The graph behind a plan, a configuration or an engine.
fn graph_of(start: &Shared) -> Option<Shared> {
    let way = [attribute::PLAN_ENGINE_CONFIG, attribute::ENGINECFG_ENGINE, attribute::ENGINE_OPERATION_GRAPH];
    let mut at = start.clone();
    for step in way {
        let next = lock(&at).first(step);
        if let Some(next) = next {
            at = next;
        }
    }
    lock(&at).values.contains_key(&attribute::GRAPH_OPS).then(|| at.clone())
}

/// Number of the engine behind a plan, a configuration, or of an engine itself.
fn engine_index(start: &Shared) -> i64 {
    let mut at = start.clone();
    for step in [attribute::PLAN_ENGINE_CONFIG, attribute::ENGINECFG_ENGINE] {
        let next = lock(&at).first(step);
        if let Some(next) = next {
            at = next;
        }
    }
    lock(&at).numbers(attribute::ENGINE_GLOBAL_INDEX).first().copied().unwrap_or(FAST)
}

/// Number of the engine whose workspace is modelled. All others need none.
const FAST: i64 = 0;

fn workspace_of(start: &Shared) -> u64 {
    let graph = graph_of(start).filter(|_| engine_index(start) == FAST);
    graph.map_or(0, |graph| lock(&graph).graph_workspace())
}

/// Numbers of the engines that compute a graph, the fastest first.
fn engines(graph: &Shared) -> &'static [i64] {
    const CONVOLUTION: [i64; 2] = [FAST, FAST + 1];
    let operations = lock(graph).values.get(&attribute::GRAPH_OPS).map(|value| value.descriptors.clone());
    let is_convolution =
        |operation: &Shared| CONVOLUTIONS.iter().any(|(kind, ..)| *kind == lock(operation).kind);
    match operations.is_some_and(|operations| operations.iter().any(is_convolution)) {
        true => &CONVOLUTION,
        false => &CONVOLUTION[..1],
    }
}

/// A value that refers to one descriptor.
fn reference(to: &Shared) -> Value {
    Value { kind: of_type::BACKEND_DESCRIPTOR, bytes: vec![0; 8], descriptors: vec![to.clone()] }
}

/// An engine of a graph.
fn engine(graph: &Shared, number: i64) -> Shared {
    let mut own = Descriptor { kind: 2, values: HashMap::new() };
    own.values.insert(attribute::ENGINE_OPERATION_GRAPH, reference(graph));
    let index = Value { kind: 3, bytes: number.to_le_bytes().to_vec(), descriptors: Vec::new() };
    own.values.insert(attribute::ENGINE_GLOBAL_INDEX, index);
    Arc::new(Mutex::new(own))
}

fn set(handle: u64, name: i32, kind: i32, count: i64, elements: In<u8>) -> Answer {
    let count = usize::try_from(count).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let bytes = elements.list(count.checked_mul(size_of_type(kind)).ok_or(CUDA_ERROR_INVALID_VALUE)?)?;
    let mut descriptors = Vec::new();
    if kind == of_type::BACKEND_DESCRIPTOR {
        for chunk in bytes.as_chunks::<8>().0 {
            descriptors.push(find(u64::from_le_bytes(*chunk))?);
        }
    }
    lock(&find(handle)?).values.insert(name, Value { kind, bytes, descriptors });
    Ok(())
}

/// Writes one number as the answer to a question.
fn number(value: i64, kind: i32, wanted: i64, count: Out<i64>, elements: Out<u8>) -> Answer {
    count.set_if_wanted(1);
    if wanted > 0 && !elements.is_null() {
        for (index, byte) in value.to_le_bytes().iter().take(size_of_type(kind)).enumerate() {
            elements.set_at(index, *byte)?;
        }
    }
    Ok(())
}

/// Fills descriptors that the caller made with what they are to be. The count is of those that were filled, or of all where the
/// caller only asks how many there are: cuDNN's frontend reads as many of its own as the count says.
fn hand_over(all: &[Shared], wanted: i64, count: Out<i64>, elements: Out<u8>) -> Answer {
    if elements.is_null() {
        count.set_if_wanted(all.len() as i64);
        return Ok(());
    }
    let wanted = usize::try_from(wanted).unwrap_or(0).min(all.len());
    count.set_if_wanted(wanted as i64);
    let places = elements.cast::<u64>();
    for (index, own) in all.iter().enumerate().take(wanted) {
        let place = places.after(index).get()?;
        let content = lock(own).clone();
        *lock(&find(place)?) = content;
    }
    Ok(())
}

fn get(handle: u64, name: i32, kind: i32, wanted: i64, count: Out<i64>, elements: Out<u8>) -> Answer {
    let own = find(handle)?;
    match name {
        attribute::ENGINEHEUR_RESULTS => {
            let graph =
                lock(&own).first(attribute::ENGINEHEUR_OPERATION_GRAPH).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            let config = |number: &i64| {
                let mut config = Descriptor { kind: 3, values: HashMap::new() };
                config.values.insert(attribute::ENGINECFG_ENGINE, reference(&engine(&graph, *number)));
                Arc::new(Mutex::new(config))
            };
            let all: Vec<Shared> = engines(&graph).iter().map(config).collect();
            return hand_over(&all, wanted, count, elements);
        }
        attribute::PLAN_WORKSPACE_SIZE | attribute::ENGINECFG_WORKSPACE_SIZE => {
            let bytes = i64::try_from(workspace_of(&own)).unwrap_or(i64::MAX);
            return number(bytes, kind, wanted, count, elements);
        }
        attribute::ENGINECFG_SHARED_MEMORY_USED => return number(0, kind, wanted, count, elements),
        attribute::GRAPH_ENGINE_COUNT => {
            return number(engines(&own).len() as i64, kind, wanted, count, elements);
        }
        attribute::PLAN_JSON => return Err(CUDA_ERROR_NOT_SUPPORTED),
        _ => {}
    }
    let value = lock(&own).values.get(&name).cloned();
    let Some(value) = value else {
        // Notes about engines, choices and layouts: there are none.
        count.set_if_wanted(0);
        return Ok(());
    };
    if value.kind == of_type::BACKEND_DESCRIPTOR {
        return hand_over(&value.descriptors, wanted, count, elements);
    }
    let size = size_of_type(value.kind);
    let all = value.bytes.len() / size;
    count.set_if_wanted(all as i64);
    if elements.is_null() {
        return Ok(());
    }
    let most = usize::try_from(wanted).unwrap_or(0).min(all) * size;
    for (index, byte) in value.bytes.iter().take(most).enumerate() {
        elements.set_at(index, *byte)?;
    }
    Ok(())
}

library! { super::status;
    /// Makes a descriptor.
    fn radrm_cudnnBackendCreateDescriptor(kind: c_int, out: Out<u64>) {
        out.required()?;
        out.set(DESCRIPTORS.add(Arc::new(Mutex::new(Descriptor { kind, values: HashMap::new() }))))
    }

    /// Destroys a descriptor.
    fn radrm_cudnnBackendDestroyDescriptor(descriptor: u64) {
        if descriptor == 0 {
            return Ok(());
        }
        DESCRIPTORS.remove(descriptor).map(|_| ())
    }

    /// Completes a descriptor.
    fn radrm_cudnnBackendFinalize(descriptor: u64) {
        let own = find(descriptor)?;
        // The workspace is worked out now, so that its note stands even if it is never asked for.
        let _ = workspace_of(&own);
        Ok(())
    }

    /// Sets an attribute.
    fn radrm_cudnnBackendSetAttribute(descriptor: u64, name: c_int, kind: c_int, count: i64, elements: In<u8>) {
        set(descriptor, name, kind, count, elements)
    }

    /// An attribute.
    fn radrm_cudnnBackendGetAttribute(
        descriptor: u64, name: c_int, kind: c_int, wanted: i64, count: Out<i64>, elements: Out<u8>,
    ) {
        get(descriptor, name, kind, wanted, count, elements)
    }

    /// Runs a plan: nothing is computed.
    fn radrm_cudnnBackendExecute(_handle: u64, plan: u64, _pack: *const c_void) {
        crate::calls::radrm_work_cudnn();
        find(plan).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(kind: i32) -> u64 {
        DESCRIPTORS.add(Arc::new(Mutex::new(Descriptor { kind, values: HashMap::new() })))
    }

    fn put<T>(descriptor: u64, name: i32, kind: i32, values: &[T]) {
        // SAFETY: plain numbers.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) };
        set(descriptor, name, kind, values.len() as i64, In::of(&bytes[0])).unwrap();
    }

    fn tensor(dims: [i64; 4]) -> u64 {
        let own = make(17);
        let strides = [dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1];
        put(own, attribute::TENSOR_DATA_TYPE, 1, &[0_i32]);
        put(own, attribute::TENSOR_DIMENSIONS, 3, &dims);
        put(own, attribute::TENSOR_STRIDES, 3, &strides);
        own
    }

    #[test]
    fn a_plan_tells_the_workspace_of_its_convolution_after_the_tensors_are_gone() {
        let operation = make(kind::CONVOLUTION_FORWARD);
        let tensors = [tensor([8, 16, 32, 32]), tensor([16, 16, 3, 3]), tensor([8, 16, 32, 32])];
        for (place, own) in [704, 703, 705].into_iter().zip(tensors) {
            put(operation, place, of_type::BACKEND_DESCRIPTOR, &[own]);
            DESCRIPTORS.remove(own).unwrap();
        }
        let graph = make(15);
        put(graph, attribute::GRAPH_OPS, of_type::BACKEND_DESCRIPTOR, &[operation]);
        let heuristic = make(4);
        put(heuristic, attribute::ENGINEHEUR_OPERATION_GRAPH, of_type::BACKEND_DESCRIPTOR, &[graph]);

        let results = attribute::ENGINEHEUR_RESULTS;
        let mut found = -1;
        // SAFETY: null.
        let nowhere = unsafe { Out::at(std::ptr::null_mut()) };
        get(heuristic, results, 15, 0, Out::of(&mut found), nowhere).unwrap();
        assert_eq!(found, 2, "how many there are");
        let mut configs = [make(3), make(3)];
        // SAFETY: room for both.
        let places = unsafe { Out::at(configs.as_mut_ptr()) }.cast();
        get(heuristic, results, 15, 1, Out::of(&mut found), places).unwrap();
        assert_eq!(found, 1, "no more than there is room for");
        get(heuristic, results, 15, 2, Out::of(&mut found), places).unwrap();
        assert_eq!(found, 2);
        let mut workspace = |config: u64| {
            let (plan, mut bytes) = (make(5), 0_i64);
            put(plan, attribute::PLAN_ENGINE_CONFIG, of_type::BACKEND_DESCRIPTOR, &[config]);
            get(plan, attribute::PLAN_WORKSPACE_SIZE, 3, 1, Out::of(&mut found), Out::of(&mut bytes).cast())
                .unwrap();
            bytes
        };
        assert_eq!(workspace(configs[0]), 4 * (2 * 8 * 16 * 32 * 32 + 16 * 16 * 9));
        assert_eq!(workspace(configs[1]), 0, "where memory does not suffice for the first");
    }
}
