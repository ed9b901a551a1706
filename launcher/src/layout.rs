//! Layout of a report for the stream that it goes to.

use std::path::Path;

use radrm_analyzer::TextOptions;

/// Layout of text for a stream.
#[must_use]
pub fn text_options(terminal: bool, width: usize, timeline: bool, path: Option<&Path>) -> TextOptions {
    let plain = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    TextOptions {
        color: terminal && !plain("NO_COLOR") && !dumb,
        timeline,
        width,
        profile_path: path.map(|path| path.display().to_string()),
        ..TextOptions::default()
    }
}
