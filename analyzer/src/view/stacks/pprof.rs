//! The profile format of pprof: `profile.proto` of github.com/google/pprof, not compressed, as `go tool pprof` also reads
//! it.

use super::prefix;
use crate::model::stacks::{Flame, FrameLabel};
use std::collections::BTreeMap;

// Numbers of fields in `profile.proto`.
const SAMPLE_TYPE: u32 = 1;
const SAMPLE: u32 = 2;
const LOCATION: u32 = 4;
const FUNCTION: u32 = 5;
const STRING: u32 = 6;
const DEFAULT_TYPE: u32 = 14;

/// The stacks at the peak and at the end as two values of one profile.
pub fn pprof(at_peak: &[Flame], at_end: &[Flame]) -> Vec<u8> {
    let mut file = File::default();
    file.text("");
    for (name, unit) in [("peak_space", "bytes"), ("held_space", "bytes")] {
        let (name, unit) = (file.text(name), file.text(unit));
        file.out.message(SAMPLE_TYPE, |message| {
            message.number(1, name);
            message.number(2, unit);
        });
    }
    let mut values = BTreeMap::<Vec<u64>, [u64; 2]>::new();
    for (value, flames) in [at_peak, at_end].into_iter().enumerate() {
        for flame in flames {
            for stack in &flame.stacks {
                let notes: Vec<FrameLabel> =
                    prefix(flames, flame).into_iter().map(FrameLabel::note).collect();
                // Innermost first.
                let locations = stack
                    .frames
                    .iter()
                    .rev()
                    .chain(notes.iter().rev())
                    .map(|frame| file.location(frame))
                    .collect();
                let values = values.entry(locations).or_default();
                values[value] = values[value].saturating_add(stack.bytes.0);
            }
        }
    }
    for (locations, values) in values {
        file.out.message(SAMPLE, |message| {
            message.numbers(1, &locations);
            message.numbers(2, &values);
        });
    }
    let default = file.text("peak_space");
    file.finish(default)
}

/// What a profile names, each once.
#[derive(Default)]
struct File {
    out: Message,
    texts: BTreeMap<String, u64>,
    order: Vec<String>,
    functions: BTreeMap<(u64, u64), u64>,
    locations: BTreeMap<(u64, u64), u64>,
}

impl File {
    fn text(&mut self, text: &str) -> u64 {
        let next = self.texts.len() as u64;
        if let Some(known) = self.texts.get(text) {
            return *known;
        }
        self.texts.insert(text.to_owned(), next);
        self.order.push(text.to_owned());
        next
    }

    fn location(&mut self, frame: &FrameLabel) -> u64 {
        let name = self.text(&frame.function);
        let path = self.text(frame.file.as_deref().unwrap_or_default());
        let next = self.functions.len() as u64 + 1;
        let function = *self.functions.entry((name, path)).or_insert(next);
        if function == next {
            self.out.message(FUNCTION, |message| {
                message.number(1, function);
                message.number(2, name);
                message.number(3, name);
                message.number(4, path);
            });
        }
        let line = u64::from(frame.line.unwrap_or(0));
        let next = self.locations.len() as u64 + 1;
        let location = *self.locations.entry((function, line)).or_insert(next);
        if location == next {
            self.out.message(LOCATION, |message| {
                message.number(1, location);
                message.message(4, |at| {
                    at.number(1, function);
                    at.number(2, line);
                });
            });
        }
        location
    }

    fn finish(mut self, default: u64) -> Vec<u8> {
        for text in &self.order {
            self.out.bytes(STRING, text.as_bytes());
        }
        self.out.number(DEFAULT_TYPE, default);
        self.out.0
    }
}

/// A message in the encoding of protocol buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Several numbers in one field.
    fn numbers(&mut self, field: u32, values: &[u64]) {
        let mut packed = Self::default();
        for value in values {
            packed.varint(*value);
        }
        self.bytes(field, &packed.0);
    }

    fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::flame;
    use super::*;

    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }

    /// The fields of a message: number, and a number or bytes.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let value = varint(&mut bytes);
            let mut body = Vec::new();
            if tag & 7 == 2 {
                body = bytes[..value as usize].to_vec();
                bytes = &bytes[value as usize..];
            }
            fields.push((tag >> 3, value, body));
        }
        fields
    }

    #[test]
    fn what_is_written_reads_back_with_all_names_and_bytes() {
        let file = fields(&pprof(&[flame(7, 0)], &[]));
        let of = |number| file.iter().filter(move |field| field.0 == number);
        let texts: Vec<String> =
            of(u64::from(STRING)).map(|field| String::from_utf8(field.2.clone()).unwrap()).collect();
        assert_eq!(texts[0], "");
        assert!(texts.contains(&"main".to_owned()) && texts.contains(&"/src/a.cpp".to_owned()));
        assert_eq!((of(2).count(), of(4).count(), of(5).count()), (2, 3, 2));
        let mut sum = 0;
        for sample in of(2) {
            let values = fields(&sample.2).into_iter().find(|field| field.0 == 2).unwrap().2;
            let mut values = &values[..];
            sum += varint(&mut values);
            assert_eq!(varint(&mut values), 0, "nothing is held at the end");
        }
        assert_eq!(sum, 701);
        assert_eq!(texts[of(14).next().unwrap().1 as usize], "peak_space");
    }
}
