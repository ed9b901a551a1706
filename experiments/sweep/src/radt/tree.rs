//! A YAML document as a tree whose nodes know where they are.

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::scalar;
use crate::error::{Column, Place, Wrong};

/// Values inside values; a file of radT's has four levels.
const MAX_DEPTH: usize = 32;

/// A value.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// As Python prints it.
    Scalar(String),
    List(Vec<Node>),
    /// In the order of the file.
    Map(Vec<(String, Node)>),
}

/// Place of an error, and the error.
type At = (Place, Wrong);

/// Reads the only document of a text; an empty one is an empty mapping.
pub(super) fn parse(text: &str) -> Result<Node, At> {
    let mut events = Events { parser: Parser::new_from_str(text) };
    let mut root = None;
    loop {
        match events.next()? {
            (Event::StreamEnd, _) => break,
            (Event::StreamStart | Event::DocumentEnd | Event::Nothing, _) => {}
            (Event::DocumentStart(_), at) if root.is_some() => return Err((place(&at), Wrong::Documents)),
            (Event::DocumentStart(_), _) => {}
            (event, at) => root = Some(events.node(event, &at, 0)?),
        }
    }
    Ok(root.unwrap_or(Node { place: Place::line(1), value: Value::Map(Vec::new()) }))
}

struct Events<'t> {
    parser: Parser<'t, saphyr_parser::StrInput<'t>>,
}

impl<'t> Events<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Span), At> {
        match self.parser.next_event() {
            Some(Ok(found)) => Ok(found),
            Some(Err(error)) => {
                let marker = error.marker();
                let place =
                    Place { line: marker.line() as u64, column: Some(Column::At(marker.col() as u64 + 1)) };
                Err((place, Wrong::Yaml(error.info().to_owned())))
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(&mut self, event: Event<'t>, at: &Span, depth: usize) -> Result<Node, At> {
        let place = place(at);
        if depth > MAX_DEPTH {
            return Err((place, Wrong::Yaml("too many values inside values".to_owned())));
        }
        let value = match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => Value::Scalar(scalar::printed(&text)),
            Event::Scalar(text, ..) => Value::Scalar(text.into_owned()),
            Event::SequenceStart(..) => {
                let mut list = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break Value::List(list),
                        (event, at) => list.push(self.node(event, &at, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut map: Vec<(String, Node)> = Vec::new();
                loop {
                    let key = match self.next()? {
                        (Event::MappingEnd, _) => break Value::Map(map),
                        (event, at) => self.node(event, &at, depth + 1)?,
                    };
                    let Value::Scalar(name) = key.value else {
                        return Err((key.place, Wrong::Expected { what: "a name" }));
                    };
                    if map.iter().any(|(other, _)| *other == name) {
                        return Err((key.place, Wrong::FieldTwice(name)));
                    }
                    let (event, at) = self.next()?;
                    map.push((name, self.node(event, &at, depth + 1)?));
                }
            }
            Event::Alias(_) => return Err((place, Wrong::Alias)),
            _ => return Err((place, Wrong::Expected { what: "a value" })),
        };
        Ok(Node { place, value })
    }
}

fn place(span: &Span) -> Place {
    Place { line: span.start.line() as u64, column: Some(Column::At(span.start.col() as u64 + 1)) }
}

impl Node {
    pub(super) fn scalar(&self) -> Result<&str, At> {
        match &self.value {
            Value::Scalar(text) => Ok(text),
            _ => Err(self.expected("a single value")),
        }
    }

    pub(super) fn list(&self) -> Result<&[Self], At> {
        match &self.value {
            Value::List(list) => Ok(list),
            _ => Err(self.expected("a list")),
        }
    }

    pub(super) fn map(&self) -> Result<&[(String, Self)], At> {
        match &self.value {
            Value::Map(map) => Ok(map),
            _ => Err(self.expected("a mapping of names to values")),
        }
    }

    /// The value of a field, if it is there.
    pub(super) fn field(&self, name: &str) -> Result<Option<&Self>, At> {
        Ok(self.map()?.iter().find(|(key, _)| key == name).map(|(_, node)| node))
    }

    fn expected(&self, what: &'static str) -> At {
        (self.place.clone(), Wrong::Expected { what })
    }
}
