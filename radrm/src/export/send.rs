//! Runs sent to a server, one after the other.

use std::env;

use radrm_text::output;

use super::chosen::Chosen;
use crate::{Failure, NAME, print};

/// Sends one after the other, and says of each what became of it. Where one fails, the rest is not sent.
pub(super) fn send_all(
    chosen: &[Chosen],
    mut send: impl FnMut(&Chosen) -> Result<String, Failure>,
) -> Result<(), Failure> {
    for (at, one) in chosen.iter().enumerate() {
        match send(one) {
            Ok(line) => print(&line)?,
            Err(error) => {
                if chosen.len() > 1 {
                    let (left, of) = (chosen.len() - at, chosen.len());
                    let text = format!("{left} of {of} runs are not sent: the same command sends them");
                    output::say(NAME, &text);
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// A variable of the environment that says something.
pub(super) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
