//! How summaries are shown: text for people, a page with pictures, JSON and traces for programs.

mod columns;
mod comparison;
mod html;
mod json;
mod perfetto;
mod phrases;
mod svg;
mod text;

pub use comparison::comparison_text;
pub use html::html;
pub use json::{json, oom_json};
pub use perfetto::perfetto;
pub use svg::escaped;
pub use text::dry_run::fits_text;
pub use text::oom::oom_text;
pub use text::{TextOptions, text};
