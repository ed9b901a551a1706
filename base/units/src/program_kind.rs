//! Kinds of programs, by the libraries that they call.

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

/// Kind of a program: the library that does most of its work on a GPU.
/// A library chooses what memory its operations take besides the program's tensors, so programs of one kind differ
/// from their dry runs in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum ProgramKind {
    /// cuDNN: convolutions and recurrent networks.
    Cudnn,
    /// Other libraries, mostly cuBLAS: matrix products.
    Other,
}

/// The library's name where calls are counted.
const CUDNN: &str = "cuDNN";

impl ProgramKind {
    /// Every kind, in the order of [`ProgramKind::index`].
    pub const ALL: [Self; 2] = [Self::Cudnn, Self::Other];

    /// Index into an array with one entry per kind.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// From the calls of each library: half of them or more decide. `None` for a program that calls none.
    #[must_use]
    pub fn of_calls<'a>(calls: impl IntoIterator<Item = (&'a str, u64)>) -> Option<Self> {
        let (mut cudnn, mut others) = (0_u64, 0_u64);
        for (library, count) in calls {
            let sum = if library == CUDNN { &mut cudnn } else { &mut others };
            *sum = sum.saturating_add(count);
        }
        match (cudnn, others) {
            (0, 0) => None,
            _ if cudnn >= others => Some(Self::Cudnn),
            _ => Some(Self::Other),
        }
    }

    /// As files have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cudnn => "cudnn",
            Self::Other => "other",
        }
    }

    /// From a file; `None` for a word of a newer version.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_with_most_calls_decides() {
        for (calls, kind) in [
            (&[("cuBLAS", 1), ("cuDNN", 100)][..], Some(ProgramKind::Cudnn)),
            (&[("cuBLAS", 10), ("cuDNN", 10)], Some(ProgramKind::Cudnn)),
            (&[("cuBLAS", 1000), ("cuDNN", 10)], Some(ProgramKind::Other)),
            (&[("cuBLAS", 6), ("cuFFT", 6), ("cuDNN", 10)], Some(ProgramKind::Other)),
            (&[], None),
        ] {
            assert_eq!(ProgramKind::of_calls(calls.iter().copied()), kind, "{calls:?}");
        }
    }

    #[test]
    fn a_kind_survives_its_text() {
        for (at, kind) in ProgramKind::ALL.into_iter().enumerate() {
            assert_eq!((kind.index(), ProgramKind::parse(kind.as_str())), (at, Some(kind)));
        }
        assert_eq!(ProgramKind::parse("quantum"), None);
    }
}
