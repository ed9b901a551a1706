//! How much memory cuDNN's operations want from their caller.
//!
//! The library tells it for each plan, and does not document it. The sizes here follow from what its kernels
//! need to work, and are told as upper bounds, each with a note that names the largest:
//!
//! * A convolution whose tensors are not channels-last works on copies that are: one of each of its three
//!   tensors (the kernels for tensor cores read channels-last only).
//! * A filter gradient is summed in parts that several blocks compute: two sums of the filter's size in
//!   single precision.
//! * Attention's backward pass sums the query's gradient in single precision, and keeps one number per row.
//! * Anything else wants nothing.

/// Elements, bytes of one, and whether the channels lie next to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tensor {
    /// Extents: batch, channels, then the spatial ones.
    pub dims: Vec<i64>,
    /// Distances in elements.
    pub strides: Vec<i64>,
    /// `cudnnDataType_t`.
    pub data_type: i32,
}

impl Tensor {
    /// Bytes of an element.
    pub fn element(&self) -> u64 {
        element(self.data_type)
    }

    /// Elements.
    pub fn count(&self) -> u64 {
        self.dims.iter().map(|dim| u64::try_from(*dim).unwrap_or(0)).product()
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.count().saturating_mul(self.element())
    }

    /// Whether channels lie next to each other. Tensors of one channel or one pixel are both.
    fn is_channels_last(&self) -> bool {
        let [_, channels, space @ ..] = self.dims.as_slice() else { return true };
        *channels == 1 || space.iter().all(|dim| *dim == 1) || self.strides.get(1) == Some(&1)
    }
}

/// Bytes of an element of a `cudnnDataType_t`.
pub fn element(data_type: i32) -> u64 {
    match data_type {
        1 | 10 | 20 => 8,
        21 => 16,
        2 | 9 => 2,
        3 | 6 | 8 | 11..=13 | 15 | 22 | 23 => 1,
        _ => 4,
    }
}

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The output from input and filter.
    Forward,
    /// The input's gradient.
    Data,
    /// The filter's gradient.
    Filter,
}

const ALIGNMENT: u64 = 256;

/// Workspace of a convolution.
pub fn convolution(direction: Direction, input: &Tensor, filter: &Tensor, output: &Tensor) -> u64 {
    let copies: u64 = [input, filter, output]
        .iter()
        .filter(|tensor| !tensor.is_channels_last())
        .map(|tensor| tensor.bytes().next_multiple_of(ALIGNMENT))
        .sum();
    let sums = match direction {
        Direction::Filter => filter.count().saturating_mul(2 * 4).next_multiple_of(ALIGNMENT),
        Direction::Forward | Direction::Data => 0,
    };
    copies + sums
}

/// Workspace of attention's backward pass.
pub fn attention_backward(query: &Tensor) -> u64 {
    let rows: u64 = query.dims.iter().take(3).map(|dim| u64::try_from(*dim).unwrap_or(0)).product();
    (query.count().saturating_mul(4) + rows.saturating_mul(4)).next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dims: [i64; 4], last: bool, data_type: i32) -> Tensor {
        let [_, c, h, w] = dims;
        let strides = if last { vec![c * h * w, 1, w * c, c] } else { vec![c * h * w, h * w, w, 1] };
        Tensor { dims: dims.to_vec(), strides, data_type }
    }

    #[test]
    fn channels_last_needs_no_copies() {
        let x = tensor([32, 64, 56, 56], true, 2);
        let (w, y) = (tensor([64, 64, 3, 3], true, 2), x.clone());
        assert_eq!(convolution(Direction::Forward, &x, &w, &y), 0);
        assert_eq!(convolution(Direction::Data, &x, &w, &y), 0);
        assert_eq!(convolution(Direction::Filter, &x, &w, &y), 64 * 64 * 9 * 8);
    }

    #[test]
    fn other_layouts_are_copied() {
        let x = tensor([32, 64, 56, 56], false, 0);
        let (w, y) = (tensor([64, 64, 3, 3], false, 0), x.clone());
        let copies = 2 * x.bytes() + w.bytes();
        assert_eq!(convolution(Direction::Forward, &x, &w, &y), copies);
    }

    #[test]
    fn a_tensor_of_one_pixel_is_in_every_layout() {
        let x = tensor([8, 512, 1, 1], false, 0);
        assert!(x.is_channels_last());
        assert_eq!(x.bytes(), 8 * 512 * 4);
    }
}
