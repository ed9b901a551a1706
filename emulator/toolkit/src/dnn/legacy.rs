//! The older interface: descriptors of tensors, filters and convolutions, and the sizes that are asked for
//! with them.

use core::ffi::{c_int, c_uint, c_void};

use radrm_cuda_abi::CUDA_ERROR_INVALID_VALUE;
use radrm_emulator_ffi::{Answer, In, Out};

use super::rnn::{Data, Network};
use super::workspace::{self, Direction, Tensor};
use crate::handles::{Registry, library};
use crate::{notes, runtime};

/// A descriptor of any kind: the interface tells kinds apart by their types alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Descriptor {
    pub(super) tensor: Tensor,
    /// `cudnnTensorFormat_t` of a filter.
    format: c_int,
    pub(super) network: Network,
    pub(super) data: Data,
}

pub(super) static DESCRIPTORS: Registry<Descriptor> = Registry::new();

/// `cudnnConvolution...AlgoPerf_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Performance {
    algorithm: c_int,
    status: c_int,
    time: f32,
    memory: usize,
    determinism: c_int,
    math_type: c_int,
    reserved: [c_int; 3],
}

const _: () = assert!(size_of::<Performance>() == 48);

/// Random state of a dropout: one generator for each thread that the device can hold. A generator has 24
/// bytes (`curandStatePhilox4_32_10_t` without what normal numbers need).
fn dropout_states(multiprocessors: c_int, threads: c_int) -> usize {
    usize::try_from(multiprocessors).unwrap_or(0) * usize::try_from(threads).unwrap_or(0) * 24
}

/// Strides of a tensor that lies without gaps.
fn packed(dims: &[i64], channels_last: bool) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    let order: Vec<usize> = if channels_last && dims.len() > 2 {
        std::iter::once(1).chain((2..dims.len()).rev()).chain([0]).collect()
    } else {
        (0..dims.len()).rev().collect()
    };
    let mut next = 1;
    for place in order {
        strides[place] = next;
        next *= dims[place].max(1);
    }
    strides
}

fn dims_of(list: In<c_int>, count: c_int) -> Answer<Vec<i64>> {
    let count = usize::try_from(count).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    Ok(list.list(count)?.into_iter().map(i64::from).collect())
}

fn tensor(handle: u64) -> Answer<Tensor> {
    DESCRIPTORS.with(handle, |own| own.tensor.clone())
}

fn convolution(direction: Direction, input: u64, filter: u64, output: u64) -> Answer<usize> {
    let bytes = workspace::convolution(direction, &tensor(input)?, &tensor(filter)?, &tensor(output)?);
    notes::guess("workspace of a convolution (cuDNN)", bytes);
    usize::try_from(bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)
}

/// The only algorithm that is offered: number 1 of each direction, which cuDNN has for all of them.
fn offer(memory: usize, wanted: c_int, found: Out<c_int>, out: Out<Performance>) -> Answer {
    if wanted > 0 {
        out.set(Performance {
            algorithm: 1,
            status: 0,
            time: 1.0,
            memory,
            determinism: 1,
            math_type: 1,
            reserved: [0; 3],
        })?;
    }
    found.set(wanted.min(1))
}

fn write_dims(values: &[i64], out: Out<c_int>, wanted: c_int) -> Answer {
    if out.is_null() {
        return Ok(());
    }
    for (index, value) in values.iter().enumerate().take(usize::try_from(wanted).unwrap_or(0)) {
        out.set_at(index, c_int::try_from(*value).unwrap_or(c_int::MAX))?;
    }
    Ok(())
}

/// Queries for one direction of convolutions.
/// They are its algorithm, its algorithm after measuring (which takes no time here), and its workspace. All
/// three have the operands in the same places; which of them is the input, the filter and the output differs.
macro_rules! direction {
    ($direction:expr, ($a:ident, $b:ident, $c:ident), ($x:ident, $w:ident, $y:ident), $get:ident, $find:ident, $workspace:ident) => {
        library! { super::status;
            /// The algorithm.
            fn $get(
                _handle: u64, $a: u64, $b: u64, _convolution: u64, $c: u64, wanted: c_int, found: Out<c_int>,
                out: Out<Performance>,
            ) {
                offer(convolution($direction, $x, $w, $y)?, wanted, found, out)
            }

            /// The algorithm, after measuring.
            fn $find(
                _handle: u64, $a: u64, _a_data: u64, $b: u64, _b_data: u64, _convolution: u64, $c: u64, _c_data: u64,
                wanted: c_int, found: Out<c_int>, out: Out<Performance>, _workspace: u64, _bytes: usize,
            ) {
                offer(convolution($direction, $x, $w, $y)?, wanted, found, out)
            }

            /// The workspace.
            fn $workspace(
                _handle: u64, $a: u64, $b: u64, _convolution: u64, $c: u64, _algorithm: c_int, out: Out<usize>,
            ) {
                out.set(convolution($direction, $x, $w, $y)?)
            }
        }
    };
}

direction!(
    Direction::Forward,
    (x, w, y),
    (x, w, y),
    radrm_cudnnGetConvolutionForwardAlgorithm_v7,
    radrm_cudnnFindConvolutionForwardAlgorithmEx,
    radrm_cudnnGetConvolutionForwardWorkspaceSize
);
direction!(
    Direction::Data,
    (w, y, x),
    (x, w, y),
    radrm_cudnnGetConvolutionBackwardDataAlgorithm_v7,
    radrm_cudnnFindConvolutionBackwardDataAlgorithmEx,
    radrm_cudnnGetConvolutionBackwardDataWorkspaceSize
);
direction!(
    Direction::Filter,
    (x, y, w),
    (x, w, y),
    radrm_cudnnGetConvolutionBackwardFilterAlgorithm_v7,
    radrm_cudnnFindConvolutionBackwardFilterAlgorithmEx,
    radrm_cudnnGetConvolutionBackwardFilterWorkspaceSize
);

library! { super::status;
    /// Makes a descriptor of any kind.
    fn radrm_cudnn_create(out: Out<u64>) {
        out.required()?;
        out.set(DESCRIPTORS.add(Descriptor::default()))
    }

    /// Destroys a descriptor of any kind.
    fn radrm_cudnn_destroy(descriptor: u64) {
        if descriptor == 0 {
            return Ok(());
        }
        DESCRIPTORS.remove(descriptor).map(|_| ())
    }

    /// Describes a tensor.
    fn radrm_cudnnSetTensorNdDescriptor(
        descriptor: u64, data_type: c_int, count: c_int, dims: In<c_int>, strides: In<c_int>,
    ) {
        let tensor = Tensor { dims: dims_of(dims, count)?, strides: dims_of(strides, count)?, data_type };
        DESCRIPTORS.with(descriptor, |own| own.tensor = tensor)
    }

    /// Describes a tensor without gaps.
    fn radrm_cudnnSetTensorNdDescriptorEx(
        descriptor: u64, format: c_int, data_type: c_int, count: c_int, dims: In<c_int>,
    ) {
        let dims = dims_of(dims, count)?;
        let strides = packed(&dims, format == 1);
        DESCRIPTORS.with(descriptor, |own| own.tensor = Tensor { dims, strides, data_type })
    }

    /// Describes a tensor of four dimensions without gaps.
    fn radrm_cudnnSetTensor4dDescriptor(
        descriptor: u64, format: c_int, data_type: c_int, n: c_int, c: c_int, h: c_int, w: c_int,
    ) {
        let dims: Vec<i64> = [n, c, h, w].map(i64::from).to_vec();
        let strides = packed(&dims, format == 1);
        DESCRIPTORS.with(descriptor, |own| own.tensor = Tensor { dims, strides, data_type })
    }

    /// Describes a tensor of four dimensions.
    fn radrm_cudnnSetTensor4dDescriptorEx(
        descriptor: u64, data_type: c_int, n: c_int, c: c_int, h: c_int, w: c_int, sn: c_int, sc: c_int, sh: c_int,
        sw: c_int,
    ) {
        let (dims, strides) = ([n, c, h, w].map(i64::from).to_vec(), [sn, sc, sh, sw].map(i64::from).to_vec());
        DESCRIPTORS.with(descriptor, |own| own.tensor = Tensor { dims, strides, data_type })
    }

    /// Parameters of a tensor's description.
    fn radrm_cudnnGetTensorNdDescriptor(
        descriptor: u64, wanted: c_int, data_type: Out<c_int>, count: Out<c_int>, dims: Out<c_int>, strides: Out<c_int>,
    ) {
        let tensor = tensor(descriptor)?;
        data_type.set_if_wanted(tensor.data_type);
        count.set_if_wanted(tensor.dims.len() as c_int);
        write_dims(&tensor.dims, dims, wanted)?;
        write_dims(&tensor.strides, strides, wanted)
    }

    /// Size of a tensor.
    fn radrm_cudnnGetTensorSizeInBytes(descriptor: u64, out: Out<usize>) {
        out.set(usize::try_from(tensor(descriptor)?.bytes()).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Describes a filter.
    fn radrm_cudnnSetFilterNdDescriptor(
        descriptor: u64, data_type: c_int, format: c_int, count: c_int, dims: In<c_int>,
    ) {
        let dims = dims_of(dims, count)?;
        let strides = packed(&dims, format == 1);
        DESCRIPTORS.with(descriptor, |own| {
            own.tensor = Tensor { dims, strides, data_type };
            own.format = format;
        })
    }

    /// Describes a filter of four dimensions.
    fn radrm_cudnnSetFilter4dDescriptor(
        descriptor: u64, data_type: c_int, format: c_int, k: c_int, c: c_int, h: c_int, w: c_int,
    ) {
        let dims: Vec<i64> = [k, c, h, w].map(i64::from).to_vec();
        let strides = packed(&dims, format == 1);
        DESCRIPTORS.with(descriptor, |own| {
            own.tensor = Tensor { dims, strides, data_type };
            own.format = format;
        })
    }

    /// Parameters of a filter's description.
    fn radrm_cudnnGetFilterNdDescriptor(
        descriptor: u64, wanted: c_int, data_type: Out<c_int>, format: Out<c_int>, count: Out<c_int>, dims: Out<c_int>,
    ) {
        let own = DESCRIPTORS.with(descriptor, |own| own.clone())?;
        data_type.set_if_wanted(own.tensor.data_type);
        format.set_if_wanted(own.format);
        count.set_if_wanted(own.tensor.dims.len() as c_int);
        write_dims(&own.tensor.dims, dims, wanted)
    }

    /// Size of a filter.
    fn radrm_cudnnGetFilterSizeInBytes(descriptor: u64, out: Out<usize>) {
        out.set(usize::try_from(tensor(descriptor)?.bytes()).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Algorithms of any direction: one.
    fn radrm_cudnn_algorithms(_handle: u64, out: Out<c_int>) {
        out.set(1)
    }

    /// Workspace of batch normalisation: the kernels of all layouts work without one where no activation
    /// is fused.
    fn radrm_cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
        _handle: u64, _mode: c_int, _operations: c_int, _x_data: u64, _z: u64, _y_data: u64, _scale: u64, _activation: u64,
        out: Out<usize>,
    ) {
        out.set(0)
    }

    /// Memory between forward and backward pass: a bit for each element where an activation is fused.
    fn radrm_cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
        _handle: u64, _mode: c_int, operations: c_int, _activation: u64, x: u64, out: Out<usize>,
    ) {
        let count = if operations == 0 { 0 } else { tensor(x)?.count() };
        out.set(usize::try_from(count.div_ceil(8)).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Workspace of its backward pass.
    fn radrm_cudnnGetBatchNormalizationBackwardExWorkspaceSize(
        _handle: u64, _mode: c_int, _operations: c_int, _x_data: u64, _y_data: u64, _dy_data: u64, _dz: u64, _dx_data: u64, _scale: u64,
        _activation: u64, out: Out<usize>,
    ) {
        out.set(0)
    }

    /// Random state of a dropout.
    fn radrm_cudnnDropoutGetStatesSize(_handle: u64, out: Out<usize>) {
        let device = runtime::memory::device_now()?;
        let get = |id| runtime::device::attribute(device, id);
        let bytes = dropout_states(get(16)?, get(39)?);
        notes::guess("random state of a dropout (cuDNN)", bytes as u64);
        out.set(bytes)
    }

    /// Memory between forward and backward pass of a dropout: a bit for each element.
    fn radrm_cudnnDropoutGetReserveSpaceSize(x: u64, out: Out<usize>) {
        out.set(usize::try_from(tensor(x)?.count().div_ceil(8)).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Workspace of a reduction: none.
    fn radrm_cudnnGetReductionWorkspaceSize(_handle: u64, _reduction: u64, _a: u64, _c: u64, out: Out<usize>) {
        out.set(0)
    }

    /// Workspace of the connectionist loss: the probabilities of paths forward and backward.
    fn radrm_cudnnGetCTCLossWorkspaceSize_v8(
        _handle: u64, _algorithm: c_int, _loss: u64, probabilities: u64, _gradients: u64, out: Out<usize>,
    ) {
        out.set(path_probabilities(probabilities)?)
    }

    /// Workspace of the connectionist loss.
    fn radrm_cudnnGetCTCLossWorkspaceSize(
        _handle: u64, probabilities: u64, _gradients: u64, _labels: *const c_void, _label_lengths: *const c_void,
        _input_lengths: *const c_void, _algorithm: c_int, _loss: u64, out: Out<usize>,
    ) {
        out.set(path_probabilities(probabilities)?)
    }

    /// Shape of a convolution's output is the caller's business in every program that is known; without the
    /// convolution's own description it cannot be told.
    fn radrm_cudnnGetConvolutionMathType(_convolution: u64, out: Out<c_uint>) {
        out.set(1)
    }
}

fn path_probabilities(probabilities: u64) -> Answer<usize> {
    let bytes = tensor(probabilities)?.bytes().saturating_mul(2);
    notes::guess("workspace of the connectionist loss (cuDNN)", bytes);
    usize::try_from(bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_tensors_have_the_strides_of_their_layout() {
        assert_eq!(packed(&[2, 3, 4, 5], false), [60, 20, 5, 1]);
        assert_eq!(packed(&[2, 3, 4, 5], true), [60, 1, 15, 3]);
        assert_eq!(packed(&[7], true), [1]);
    }
}
