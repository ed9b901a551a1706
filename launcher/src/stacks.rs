//! The value of `--stacks`.

use radrm_limits::amount;

/// Call stacks that are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stacks {
    /// Requests to the driver of at least so many bytes.
    Requests(u64),
    /// All requests to the driver, and tensors.
    Tensors,
}

impl Stacks {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match amount::bytes(text) {
            _ if text == "tensors" => Ok(Self::Tensors),
            Ok(bytes) => Ok(Self::Requests(bytes)),
            Err(why) if text.starts_with(|first: char| first.is_ascii_digit()) => Err(why.to_string()),
            Err(_) => Err(format!("`{text}` is neither tensors nor an amount of memory such as 64KiB")),
        }
    }

    pub(crate) const fn smallest(self) -> u64 {
        match self {
            Self::Requests(bytes) => bytes,
            Self::Tensors => 0,
        }
    }
}
