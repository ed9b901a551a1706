//! Requests of a job, as they are shown.

pub use crate::specification::Asked;

/// Value of an option, by the way in which it is shown.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// The option has no value.
    Switch,
    /// Bytes.
    Bytes(u64),
    /// Milliseconds.
    Time(u64),
    /// Thousandths, shown in per cent.
    Percent(u32),
    /// Thousandths, shown as a part of 1.
    Part(u32),
    /// Number of a signal.
    Signal(i32),
    /// A count.
    Count(u32),
    /// Text.
    Text(String),
    /// The option is given again for each.
    Texts(Vec<String>),
}
