//! Text of the programs: untrusted names, tables, colour, standard streams and command lines.

mod clean;
mod nearest;
pub mod number;
pub mod output;
mod paint;
mod table;
mod untrusted;
pub mod usage;
mod wrap;

pub use clean::{clean, csv_cell, fit, printable};
pub use nearest::{did_you_mean, explained, nearest};
pub use paint::Paint;
pub use table::{Column, Table, left, right};
pub use untrusted::Untrusted;
pub use wrap::wrapped;
