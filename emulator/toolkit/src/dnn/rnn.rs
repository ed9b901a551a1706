//! Recurrent networks.
//!
//! The layout of weights is part of the interface.
//! Matrices of all gates come by layer and direction, input before recurrent ones, then all biases in the same
//! order. Workspace and reserved space are not documented; they are reported as upper bounds: every gate's
//! activation of every time step is kept for the backward pass, and once more while one pass is computed.

use core::ffi::{c_int, c_uint, c_void};

use radrm_cuda_abi::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED};
use radrm_emulator_ffi::{Answer, In, Out};

use super::legacy::DESCRIPTORS;
use super::workspace::{Tensor, element};
use crate::handles::library;
use crate::notes;

/// A network as it is described.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Network {
    cell: c_int,
    bias: c_int,
    directions: u64,
    data_type: c_int,
    input: u64,
    hidden: u64,
    projection: u64,
    layers: u64,
}

/// Sequences as they are described.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Data {
    steps: u64,
    batch: u64,
}

/// A matrix or bias: where it begins, in elements, rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    at: u64,
    rows: u64,
    columns: u64,
}

impl Network {
    fn gates(&self) -> u64 {
        match self.cell {
            2 => 4,
            3 => 3,
            _ => 1,
        }
    }

    /// Returns true if the recurrent state is smaller than the cell.
    fn is_projected(&self) -> bool {
        self.projection != 0 && self.projection != self.hidden
    }

    fn output(&self) -> u64 {
        if self.is_projected() { self.projection } else { self.hidden }
    }

    /// Inputs of a layer: what comes in, or all directions of the layer below.
    fn inputs(&self, pseudo_layer: u64) -> u64 {
        if pseudo_layer / self.directions == 0 { self.input } else { self.output() * self.directions }
    }

    /// For the gates' inputs and for the recurrences, true if they have a bias.
    fn biases(&self) -> (bool, bool) {
        match self.bias {
            0 => (false, false),
            1 => (true, false),
            3 => (false, true),
            _ => (true, true),
        }
    }

    fn pseudo_layers(&self) -> u64 {
        self.layers * self.directions
    }

    fn matrices(&self, pseudo_layer: u64) -> u64 {
        let gates = self.gates() * self.hidden * (self.inputs(pseudo_layer) + self.output());
        gates + if self.is_projected() { self.projection * self.hidden } else { 0 }
    }

    fn biases_of_layer(&self) -> u64 {
        let (input, recurrent) = self.biases();
        self.gates() * self.hidden * (u64::from(input) + u64::from(recurrent))
    }

    /// Elements of all weights.
    fn weights(&self) -> u64 {
        let matrices: u64 = (0..self.pseudo_layers()).map(|layer| self.matrices(layer)).sum();
        matrices + self.pseudo_layers() * self.biases_of_layer()
    }

    /// Matrix and bias number `id` of a layer.
    fn part(&self, pseudo_layer: u64, id: u64) -> Answer<(Part, Option<Part>)> {
        let gates = self.gates();
        if pseudo_layer >= self.pseudo_layers() || id > 2 * gates || (id == 2 * gates && !self.is_projected())
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let start: u64 = (0..pseudo_layer).map(|layer| self.matrices(layer)).sum();
        let inputs = self.inputs(pseudo_layer);
        let all_inputs = gates * self.hidden * inputs;
        if id == 2 * gates {
            let at = start + all_inputs + gates * self.hidden * self.output();
            return Ok((Part { at, rows: self.projection, columns: self.hidden }, None));
        }
        let matrix = if id < gates {
            Part { at: start + id * self.hidden * inputs, rows: self.hidden, columns: inputs }
        } else {
            let at = start + all_inputs + (id - gates) * self.hidden * self.output();
            Part { at, rows: self.hidden, columns: self.output() }
        };
        let all_matrices: u64 = (0..self.pseudo_layers()).map(|layer| self.matrices(layer)).sum();
        let own = all_matrices + pseudo_layer * self.biases_of_layer();
        let place = match self.biases() {
            (true, true) => Some(id),
            (true, false) => (id < gates).then_some(id),
            (false, true) => id.checked_sub(gates),
            (false, false) => None,
        };
        Ok((matrix, place.map(|place| Part { at: own + place * self.hidden, rows: self.hidden, columns: 1 })))
    }

    /// Upper bounds of workspace and reserved space, bytes.
    fn spaces(&self, data: Data, training: bool) -> (u64, u64) {
        let states = self.gates() + 1 + u64::from(self.cell == 2);
        let kept = data.steps * data.batch * self.hidden * self.pseudo_layers() * states;
        let bytes = element(self.data_type);
        (kept * bytes, if training { kept * bytes } else { 0 })
    }
}

fn network(handle: u64) -> Answer<Network> {
    DESCRIPTORS.with(handle, |own| own.network)
}

fn describe(descriptor: u64, part: Option<Part>, data_type: c_int) -> Answer {
    if descriptor == 0 {
        return Ok(());
    }
    let tensor = part.map_or_else(Tensor::default, |part| {
        let (rows, columns) = (part.rows.cast_signed(), part.columns.cast_signed());
        Tensor { dims: vec![1, rows, columns], strides: vec![rows * columns, columns, 1], data_type }
    });
    DESCRIPTORS.with(descriptor, |own| own.tensor = tensor)
}

library! { super::status;
    /// Describes a network.
    fn radrm_cudnnSetRNNDescriptor_v8(
        descriptor: u64, _algorithm: c_int, cell: c_int, bias: c_int, direction: c_int, input_mode: c_int,
        data_type: c_int, _precision: c_int, _math: c_int, input: i32, hidden: i32, projection: i32, layers: i32,
        _dropout: u64, _flags: c_uint,
    ) {
        if input_mode != 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let number = |value: i32| u64::try_from(value).map_err(|_| CUDA_ERROR_INVALID_VALUE);
        let network = Network {
            cell,
            bias,
            directions: if direction == 0 { 1 } else { 2 },
            data_type,
            input: number(input)?,
            hidden: number(hidden)?,
            projection: number(projection)?,
            layers: number(layers)?,
        };
        DESCRIPTORS.with(descriptor, |own| own.network = network)
    }

    /// Describes sequences.
    fn radrm_cudnnSetRNNDataDescriptor(
        descriptor: u64, _data_type: c_int, _layout: c_int, steps: c_int, batch: c_int, _vector: c_int,
        _lengths: In<c_int>, _padding: *mut c_void,
    ) {
        let number = |value: c_int| u64::try_from(value).map_err(|_| CUDA_ERROR_INVALID_VALUE);
        let data = Data { steps: number(steps)?, batch: number(batch)? };
        DESCRIPTORS.with(descriptor, |own| own.data = data)
    }

    /// Workspace, and memory between forward and backward pass.
    fn radrm_cudnnGetRNNTempSpaceSizes(
        _handle: u64, descriptor: u64, mode: c_int, x: u64, work: Out<usize>, reserve: Out<usize>,
    ) {
        let data = DESCRIPTORS.with(x, |own| own.data)?;
        let (workspace, reserved) = network(descriptor)?.spaces(data, mode == 1);
        notes::guess("workspace of a recurrent network (cuDNN)", workspace);
        notes::guess("reserved space of a recurrent network (cuDNN)", reserved);
        let size = |bytes: u64| usize::try_from(bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE);
        work.set_if_wanted(size(workspace)?);
        reserve.set_if_wanted(size(reserved)?);
        Ok(())
    }

    /// Size of all weights.
    fn radrm_cudnnGetRNNWeightSpaceSize(_handle: u64, descriptor: u64, out: Out<usize>) {
        let network = network(descriptor)?;
        let bytes = network.weights() * element(network.data_type);
        out.set(usize::try_from(bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Addresses of a matrix and its bias.
    fn radrm_cudnnGetRNNWeightParams(
        _handle: u64, descriptor: u64, pseudo_layer: i32, _bytes: usize, weights: u64, id: i32, matrix: u64,
        matrix_at: Out<u64>, bias: u64, bias_at: Out<u64>,
    ) {
        let network = network(descriptor)?;
        let number = |value: i32| u64::try_from(value).map_err(|_| CUDA_ERROR_INVALID_VALUE);
        let (own, own_bias) = network.part(number(pseudo_layer)?, number(id)?)?;
        let place = |part: &Part| weights + part.at * element(network.data_type);
        describe(matrix, Some(own), network.data_type)?;
        describe(bias, own_bias, network.data_type)?;
        matrix_at.set_if_wanted(place(&own));
        bias_at.set_if_wanted(own_bias.as_ref().map_or(0, place));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lstm(layers: u64, directions: u64) -> Network {
        Network { cell: 2, bias: 2, directions, data_type: 0, input: 10, hidden: 20, projection: 0, layers }
    }

    #[test]
    fn weights_are_counted_as_pytorch_counts_its_parameters() {
        // torch.nn.LSTM(10, 20, 2, bidirectional=True): 4*20*(10+20+2) a direction below, 4*20*(40+20+2) above.
        let one = 4 * 20 * (10 + 20 + 2);
        assert_eq!(lstm(1, 1).weights(), one);
        assert_eq!(lstm(2, 2).weights(), 2 * one + 2 * 4 * 20 * (40 + 20 + 2));
    }

    #[test]
    fn parts_fill_the_weights_without_gap_or_overlap() {
        for network in
            [lstm(2, 2), Network { projection: 5, ..lstm(2, 1) }, Network { cell: 3, ..lstm(3, 1) }]
        {
            let mut pieces = Vec::new();
            let last = 2 * network.gates() + u64::from(network.is_projected());
            for layer in 0..network.pseudo_layers() {
                for id in 0..last {
                    let (matrix, bias) = network.part(layer, id).unwrap();
                    pieces.push((matrix.at, matrix.rows * matrix.columns));
                    pieces.extend(bias.map(|bias| (bias.at, bias.rows)));
                }
            }
            pieces.sort_unstable();
            let mut at = 0;
            for (start, size) in pieces {
                assert_eq!(start, at, "{network:?}");
                at += size;
            }
            assert_eq!(at, network.weights(), "{network:?}");
        }
    }
}
