//! The profile format of pprof: `profile.proto` of github.com/google/pprof, not compressed, as `go tool pprof` also reads
//! it.

use super::prefix;
use super::wire::Message;
use crate::model::stacks::{Flame, FrameLabel};
use std::collections::BTreeMap;

// Numbers of fields in `profile.proto`.
const SAMPLE_TYPE: u32 = 1;
const SAMPLE: u32 = 2;
const LOCATION: u32 = 4;
const FUNCTION: u32 = 5;
const STRING: u32 = 6;
const DEFAULT_TYPE: u32 = 14;

/// Named lists of flames, each as a value in bytes of one profile; the first is shown unless another is asked for.
pub fn pprof(lists: &[(String, Vec<Flame>)]) -> Vec<u8> {
    let mut file = File::default();
    file.text("");
    for (name, _) in lists {
        let (name, unit) = (file.text(name), file.text("bytes"));
        file.out.message(SAMPLE_TYPE, |message| {
            message.number(1, name);
            message.number(2, unit);
        });
    }
    let mut values = BTreeMap::<Vec<u64>, Vec<u64>>::new();
    for (value, (_, flames)) in lists.iter().enumerate() {
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
                let values = values.entry(locations).or_insert_with(|| vec![0; lists.len()]);
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
    let default = file.text(lists.first().map_or("", |(name, _)| name.as_str()));
    file.finish(default)
}

/// Tables of a profile, with each name in them once.
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
        self.out.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::flame;
    use super::super::wire::tests::{fields, varint};
    use super::*;

    #[test]
    fn what_is_written_reads_back_with_all_names_and_bytes() {
        let file =
            fields(&pprof(&[("peak_space".into(), vec![flame(7, 0)]), ("held_space".into(), Vec::new())]));
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
