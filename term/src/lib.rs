//! Text for terminals: untrusted names, tables, colour.

mod clean;
pub mod number;
mod paint;
mod table;
mod wrap;

pub use clean::{clean, fit};
pub use paint::Paint;
pub use table::{Column, Table, left, right};
pub use wrap::wrapped;
