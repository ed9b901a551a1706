//! Views of summaries: text for people, a page with pictures, JSON and traces for programs.

mod columns;
mod comparison;
mod curves;
mod escaped;
mod explore;
mod flame;
mod json;
mod page;
mod perfetto;
mod phrases;
pub mod sheet;
pub mod stacks;
mod text;

pub use comparison::{comparison_html, comparison_text};
pub use curves::{Curve, Curves};
pub use escaped::escaped;
pub use explore::explorer;
pub use json::{json, oom_json};
pub use page::html;
pub use perfetto::perfetto;
pub use text::dry_run::fits_text;
pub use text::oom::oom_text;
pub use text::{TextOptions, text};
