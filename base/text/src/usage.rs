//! Command lines that ask for no work: for help, or for something that there is not.

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::nearest::did_you_mean;
use crate::output;

/// The command line is wrong.
pub const WRONG: u8 = 2;

/// A command line that asks for no program to be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Instead {
    /// Print this to standard output and end well.
    Print(String),
    /// One sentence about what is wrong.
    Wrong(String),
}

/// The flags of a command line, the program's own name first. `more` is the command that explains them.
///
/// # Errors
/// How the program ends without them, all being said.
pub fn flags<F: Parser>(
    arguments: impl IntoIterator<Item = OsString>,
    program: &str,
    more: &str,
) -> Result<F, ExitCode> {
    F::try_parse_from(arguments).map_err(|error| end(explain(&error), program, more))
}

/// Says what is to be said instead, and gives the exit code.
#[must_use]
pub fn end(instead: Instead, program: &str, more: &str) -> ExitCode {
    match instead {
        Instead::Print(text) => match output::to_stdout(&text) {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => {
                output::say(program, &format!("standard output cannot be written: {error}"));
                ExitCode::FAILURE
            }
        },
        Instead::Wrong(sentence) => {
            output::say(program, &format!("{sentence} (see `{more}`)"));
            ExitCode::from(WRONG)
        }
    }
}

/// Puts what clap found into one sentence.
#[must_use]
pub fn explain(error: &clap::Error) -> Instead {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(" "),
        _ => String::new(),
    };
    Instead::Wrong(match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Instead::Print(error.to_string());
        }
        ErrorKind::UnknownArgument => {
            let argument = context(ContextKind::InvalidArg);
            let what = if argument.starts_with('-') { "there is no option" } else { "unexpected argument" };
            format!("{what} {argument}{}", similar(error, ContextKind::SuggestedArg))
        }
        ErrorKind::InvalidSubcommand => format!(
            "there is no command {}{}",
            context(ContextKind::InvalidSubcommand),
            similar(error, ContextKind::SuggestedSubcommand)
        ),
        ErrorKind::MissingSubcommand => match error.get(ContextKind::ValidSubcommand) {
            Some(ContextValue::Strings(names)) => format!("no command given: try {}", alternatives(names)),
            _ => "no command given".to_owned(),
        },
        ErrorKind::ArgumentConflict => format!(
            "{} cannot be used together with {}",
            context(ContextKind::InvalidArg),
            context(ContextKind::PriorArg)
        ),
        ErrorKind::MissingRequiredArgument => {
            format!("{} is missing", context(ContextKind::InvalidArg))
        }
        ErrorKind::InvalidValue if !context(ContextKind::InvalidValue).is_empty() => {
            let value = context(ContextKind::InvalidValue);
            let known = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(names)) if !names.is_empty() => {
                    let similar = did_you_mean(&value, names.iter().map(String::as_str));
                    format!(": write {}{similar}", alternatives(names))
                }
                _ => String::new(),
            };
            let argument = context(ContextKind::InvalidArg);
            let option = argument.split([' ', '=']).next().unwrap_or_default().trim_end_matches('[');
            format!("there is no value {value} for {option}{known}")
        }
        ErrorKind::ValueValidation if is_no_number(error) => {
            let argument = context(ContextKind::InvalidArg);
            format!("{argument}: `{}` is not a whole number", context(ContextKind::InvalidValue))
        }
        ErrorKind::ValueValidation if reason(error).is_some() => reason(error).unwrap_or_default(),
        // The first line of clap's own text, without its "error: ".
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            line.strip_prefix("error: ").unwrap_or(line).to_owned()
        }
    })
}

/// The most similar name that there is, as a question.
fn similar(error: &clap::Error, kind: ContextKind) -> String {
    let name = match error.get(kind) {
        Some(ContextValue::String(name)) => Some(name),
        // The best one stands last.
        Some(ContextValue::Strings(names)) => names.last(),
        _ => None,
    };
    name.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

/// Returns true if a whole number was expected; the reason does not name the value.
fn is_no_number(error: &clap::Error) -> bool {
    error.source().is_some_and(|why| why.is::<std::num::ParseIntError>())
}

/// `--option: why`, if the reason that the option's parser gives names the value.
fn reason(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let why = error.source()?.to_string();
    let option = text(ContextKind::InvalidArg)?.split([' ', '=']).next()?;
    let is_option = option.starts_with('-');
    why.contains(text(ContextKind::InvalidValue)?)
        .then(|| if is_option { format!("{}: {why}", option.trim_end_matches('[')) } else { why })
}

/// `a, b or c`, without the help that every program has.
fn alternatives(names: &[String]) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != "help").collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}
