//! Workspace that cuDNN's operations want from their caller.
//!
//! The library tells it for each plan, and does not document it. The sizes here follow from what its kernels
//! need to work, and are told as upper bounds, each with a note that names the largest:
//!
//! * A convolution whose tensors are not channels-last works on copies that are: one of each of its three
//!   tensors (the kernels for tensor cores read channels-last only).
//! * The gradient of an input that is not channels-last, where a dense filter of more than one pixel has [`WIDE`] or more
//!   channels on both sides, takes [`WIDE_COPIES`] copies of input and output. This is no knowledge of cuDNN's: it is what
//!   brings VGG16 and Inception v3 to the peaks measured on A100s.
//! * A filter as large as its input is a matrix product, which wants nothing.
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

    /// Returns true if channels lie next to each other. Tensors of one channel or one pixel are both.
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

/// Tensor that a convolution computes.
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

/// Channels of input and output from which on the gradient of an input takes more.
const WIDE: i64 = 32;
const WIDE_COPIES: u64 = 2;

/// Workspace of a convolution.
pub fn convolution(direction: Direction, input: &Tensor, filter: &Tensor, output: &Tensor) -> u64 {
    if is_product(filter, output) {
        return 0;
    }
    if direction == Direction::Data && is_wide(input, filter, output) {
        let both = input.bytes().saturating_add(output.bytes());
        return both.saturating_mul(WIDE_COPIES).next_multiple_of(ALIGNMENT);
    }
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

/// Returns true if the filter covers its whole input, so that each output channel is one number.
fn is_product(filter: &Tensor, output: &Tensor) -> bool {
    let is_pixel = |tensor: &Tensor| tensor.dims.iter().skip(2).all(|dim| *dim == 1);
    is_pixel(output) && !is_pixel(filter)
}

/// Returns true for a dense convolution of many channels, in a layout that has to be copied.
fn is_wide(input: &Tensor, filter: &Tensor, output: &Tensor) -> bool {
    let channels = |tensor: &Tensor| tensor.dims.get(1).copied().unwrap_or(0);
    let is_dense = channels(filter) == channels(input);
    let has_pixels = filter.dims.iter().skip(2).any(|dim| *dim > 1);
    let is_copied = !input.is_channels_last() && !output.is_channels_last();
    is_dense && has_pixels && is_copied && channels(input) >= WIDE && channels(output) >= WIDE
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
    fn gradients_of_wide_inputs_take_copies_of_both_sides() {
        let data = |x: &Tensor, w: &Tensor| convolution(Direction::Data, x, w, x);
        let x = tensor([32, 64, 56, 56], false, 0);
        assert_eq!(data(&x, &tensor([64, 64, 3, 3], false, 0)), 4 * x.bytes());
        let others = [
            (tensor([32, 16, 56, 56], false, 0), tensor([16, 16, 3, 3], false, 0), "few channels"),
            (x.clone(), tensor([64, 1, 3, 3], false, 0), "a filter for each channel"),
            (x.clone(), tensor([64, 64, 1, 1], false, 0), "one pixel"),
        ];
        for (x, w, what) in others {
            let filter = if w.is_channels_last() { 0 } else { w.bytes().next_multiple_of(ALIGNMENT) };
            assert_eq!(data(&x, &w), 2 * x.bytes() + filter, "{what}");
        }
        assert_eq!(data(&tensor([32, 64, 56, 56], true, 0), &tensor([64, 64, 3, 3], true, 0)), 0);
    }

    #[test]
    fn a_filter_as_large_as_its_input_is_a_matrix_product() {
        let (x, w) = (tensor([8, 512, 7, 7], false, 0), tensor([4096, 512, 7, 7], false, 0));
        let y = tensor([8, 4096, 1, 1], false, 0);
        for direction in [Direction::Forward, Direction::Data, Direction::Filter] {
            assert_eq!(convolution(direction, &x, &w, &y), 0, "{direction:?}");
        }
    }

    #[test]
    fn a_tensor_of_one_pixel_is_in_every_layout() {
        let x = tensor([8, 512, 1, 1], false, 0);
        assert!(x.is_channels_last());
        assert_eq!(x.bytes(), 8 * 512 * 4);
    }
}
