//! Parts of an attempt at a run that `radrmd` and `radrm sweep` share.
//!
//! | module | is |
//! |---|---|
//! | `barrier` | where the attempts of a group wait for each other |
//! | `leftovers` | processes that an attempt left when its supervisor was killed |
//! | `lock` | a file that is locked as long as its supervisor lives |
//! | `process` | signals by descriptor: none reaches a later process of the same number |

pub mod barrier;
pub mod leftovers;
pub mod lock;
mod process;

pub use barrier::{Barrier, Waiter};
pub use process::{HeldProcess, below, kill_below, kill_tree, signal_group};
