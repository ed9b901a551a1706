//! Commands with places for values: `{batch}`; `{{` is a brace.

use serde::Deserialize;
use toml::Spanned;

use super::checks::At;
use super::values::Values;
use crate::error::Wrong;

/// A command as written: one text as a shell splits it, or its words.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text or a list of texts")]
pub(super) enum RawCommand {
    Line(String),
    Words(Vec<String>),
}

/// A text with places.
#[derive(Debug)]
pub(super) struct Template(Vec<Part>);

#[derive(Debug)]
enum Part {
    Text(String),
    Place(String),
}

/// A program and its arguments.
#[derive(Debug)]
pub(super) struct Command(Vec<Template>);

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, Wrong> {
        let (mut parts, mut rest, mut plain) = (Vec::new(), text, String::new());
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let (brace, behind) = rest[at..].split_at(1);
            if let Some(behind) = behind.strip_prefix(brace) {
                plain.push_str(brace);
                rest = behind;
            } else if brace == "{" {
                let (name, behind) = behind.split_once('}').ok_or(Wrong::Brace)?;
                parts.push(Part::Text(std::mem::take(&mut plain)));
                parts.push(Part::Place(name.trim().to_owned()));
                rest = behind;
            } else {
                return Err(Wrong::Brace);
            }
        }
        parts.push(Part::Text(plain + rest));
        Ok(Self(parts))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| if let Part::Place(name) = part { Some(name.as_str()) } else { None })
    }

    /// The text with values; all names were checked.
    pub(super) fn fill(&self, values: &Values) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Place(name) => values.get(name).cloned().unwrap_or_default(),
        };
        self.0.iter().map(part).collect()
    }
}

impl Command {
    pub(super) fn parse(raw: &Spanned<RawCommand>) -> Result<Self, At> {
        let at = raw.span().start;
        // Split first: a value with blanks is one word.
        let words = match raw.get_ref() {
            RawCommand::Line(line) => shlex::split(line).ok_or((at, Wrong::Quotes))?,
            RawCommand::Words(words) => words.clone(),
        };
        if words.first().is_none_or(String::is_empty) {
            return Err((at, Wrong::NoCommand));
        }
        let templates = words.iter().map(|word| Template::parse(word)).collect::<Result<_, _>>();
        templates.map(Self).map_err(|wrong| (at, wrong))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(Template::names)
    }

    pub(super) fn fill(&self, values: &Values) -> Vec<String> {
        self.0.iter().map(|word| word.fill(values)).collect()
    }
}
