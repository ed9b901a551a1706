//! Users, as their jobs and runs name them.

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

/// A user: a uid, or any number that stands for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct UserId(pub u32);
