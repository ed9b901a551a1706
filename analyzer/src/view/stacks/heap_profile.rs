//! A heap profile for ui.perfetto.dev: a trace (`trace.proto` of github.com/google/perfetto) with one `ProfilePacket`, in
//! which each recorded moment of a process and GPU is a dump of the heap "GPU n". Refused requests are such moments.

use super::wire::Message;
use crate::model::stacks::{FrameLabel, Memory, StackTable, tables_of};
use radrm_profile::model::Profile;
use radrm_profile::{Bytes, Nanos};
use std::collections::BTreeMap;

// Numbers of fields in the protocol's files, by message.
const PACKET: u32 = 1;
mod packet {
    pub(super) const PROCESS_TREE: u32 = 2;
    pub(super) const CLOCKS: u32 = 6;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const PROFILE: u32 = 37;
}
mod profile {
    pub(super) const STRINGS: u32 = 1;
    pub(super) const FRAMES: u32 = 2;
    pub(super) const CALLSTACKS: u32 = 3;
    pub(super) const MAPPINGS: u32 = 4;
    pub(super) const DUMPS: u32 = 5;
}
mod dump {
    pub(super) const PID: u32 = 1;
    pub(super) const SAMPLES: u32 = 2;
    pub(super) const TIMESTAMP: u32 = 9;
    pub(super) const HEAP: u32 = 11;
}

/// Clocks: the wall, the one of dumps, and the one of a trace.
const CLOCKS: [u64; 3] = [1, 4, 6];

/// The stacks of a profile at the peak, at the end and at the moments in between that are recorded. `all_frames` as in
/// [`crate::flames`].
pub fn heap_profile(profile: &Profile, all_frames: bool) -> Vec<u8> {
    let tables: Vec<StackTable<'_>> =
        Memory::ALL.into_iter().flat_map(|memory| tables_of(profile, memory, all_frames)).collect();
    let mut names = Names::default();
    let mut dumps = Message::default();
    let mut end = Nanos::ZERO;
    for table in &tables {
        let is_of =
            |other: &&StackTable<'_>| (other.process.key, other.memory) == (table.process.key, table.memory);
        let gpus = tables.iter().filter(is_of).count();
        end = end.max(write_dumps(&mut dumps, &mut names, table, gpus > 1, profile.duration()));
    }
    let mut trace = Message::default();
    let packet = |trace: &mut Message, fill: &dyn Fn(&mut Message)| {
        trace.message(PACKET, |message| {
            message.number(packet::SEQUENCE, 1);
            fill(message);
        });
    };
    packet(&mut trace, &|message| {
        message.message(packet::CLOCKS, |clocks| {
            for clock in CLOCKS {
                clocks.message(1, |message| {
                    message.number(1, clock);
                    message.number(2, if clock == 1 { profile.job.start_unix_ns } else { 0 });
                });
            }
        });
    });
    packet(&mut trace, &|message| {
        message.number(packet::TIMESTAMP, 0);
        message.message(packet::PROCESS_TREE, |tree| {
            for process in &profile.processes {
                tree.message(1, |message| {
                    message.number(1, process.identity.pid.into());
                    for word in process.identity.command.split(' ') {
                        message.bytes(3, word.as_bytes());
                    }
                });
            }
        });
    });
    packet(&mut trace, &|message| {
        message.number(packet::TIMESTAMP, end.0);
        message.message(packet::PROFILE, |profile| {
            profile.append(&names.out);
            profile.append(&dumps);
        });
    });
    trace.into_bytes()
}

/// Memory at one moment, by row.
struct Held {
    t: Nanos,
    rows: Vec<Bytes>,
}

/// The dumps of a process and GPU by time; gives the time of the last.
fn write_dumps(
    out: &mut Message,
    names: &mut Names,
    table: &StackTable<'_>,
    several: bool,
    duration: Nanos,
) -> Nanos {
    let mut heap = format!("GPU {}", table.account.gpu.0);
    if table.memory != Memory::Device {
        heap = format!("{heap} {}", table.memory.label());
    }
    let stacks: Vec<u64> =
        table.rows.iter().map(|row| names.stack(several.then_some(heap.as_str()), &row.frames)).collect();
    let mut all: Vec<Held> =
        table.moments.iter().map(|moment| Held { t: moment.t, rows: moment.held.clone() }).collect();
    all.extend(table.refusals.iter().map(|refusal| Held { t: refusal.t, rows: refusal.held.clone() }));
    let peak_at = table.account.peak_at;
    if table.moments.iter().all(|moment| !moment.is_peak || moment.t != peak_at) {
        all.push(Held { t: peak_at, rows: table.rows.iter().map(|row| row.at_peak).collect() });
    }
    let ended = table.process.state.ended.unwrap_or(duration);
    all.push(Held { t: ended.max(peak_at), rows: table.rows.iter().map(|row| row.at_end).collect() });
    all.sort_by_key(|held| held.t);
    // Readers take sums of all that was ever allocated and freed.
    let mut sums = vec![(0u64, 0u64); table.rows.len()];
    let mut last = Nanos::ZERO;
    for held in &all {
        out.message(profile::DUMPS, |message| {
            message.number(dump::PID, table.pid().into());
            message.number(dump::TIMESTAMP, held.t.0);
            message.bytes(dump::HEAP, heap.as_bytes());
            for ((bytes, sum), stack) in held.rows.iter().zip(&mut sums).zip(&stacks) {
                let before = sum.0.saturating_sub(sum.1);
                sum.0 = sum.0.saturating_add(bytes.0.saturating_sub(before));
                sum.1 = sum.1.saturating_add(before.saturating_sub(bytes.0));
                if sum.0 > 0 {
                    message.message(dump::SAMPLES, |sample| {
                        sample.number(1, *stack);
                        sample.number(2, sum.0);
                        sample.number(3, sum.1);
                    });
                }
            }
        });
        last = held.t;
    }
    last
}

/// Texts, frames and stacks, each once; numbers begin with 1.
#[derive(Default)]
struct Names {
    out: Message,
    strings: BTreeMap<String, u64>,
    mappings: BTreeMap<String, u64>,
    frames: BTreeMap<FrameLabel, u64>,
    stacks: BTreeMap<Vec<u64>, u64>,
}

impl Names {
    fn string(&mut self, text: &str) -> u64 {
        if let Some(known) = self.strings.get(text) {
            return *known;
        }
        let number = self.strings.len() as u64 + 1;
        self.strings.insert(text.to_owned(), number);
        self.out.message(profile::STRINGS, |message| {
            message.number(1, number);
            message.bytes(2, text.as_bytes());
        });
        number
    }

    /// A frame needs a mapping: its file.
    fn mapping(&mut self, path: &str) -> u64 {
        if let Some(known) = self.mappings.get(path) {
            return *known;
        }
        let (none, text) = (self.string(""), self.string(path));
        let number = self.mappings.len() as u64 + 1;
        self.mappings.insert(path.to_owned(), number);
        self.out.message(profile::MAPPINGS, |message| {
            message.number(1, number);
            message.number(2, none);
            message.number(7, text);
        });
        number
    }

    fn frame(&mut self, label: &FrameLabel) -> u64 {
        if let Some(known) = self.frames.get(label) {
            return *known;
        }
        let name = self.string(&label.to_string());
        let mapping = self.mapping(label.file.as_deref().unwrap_or("[no file]"));
        let number = self.frames.len() as u64 + 1;
        self.frames.insert(label.clone(), number);
        self.out.message(profile::FRAMES, |message| {
            message.number(1, number);
            message.number(2, name);
            message.number(3, mapping);
            // Frames of one name and place are one: this tells them apart.
            message.number(4, number);
        });
        number
    }

    fn stack(&mut self, prefix: Option<&str>, frames: &[FrameLabel]) -> u64 {
        let prefix = prefix.map(FrameLabel::note);
        // Outermost first.
        let frames: Vec<u64> = prefix.iter().chain(frames).map(|frame| self.frame(frame)).collect();
        let number = self.stacks.len() as u64 + 1;
        if let Some(known) = self.stacks.get(&frames) {
            return *known;
        }
        self.out.message(profile::CALLSTACKS, |message| {
            message.number(1, number);
            for frame in &frames {
                message.number(2, *frame);
            }
        });
        self.stacks.insert(frames, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::tests::fields;
    use super::*;
    use crate::model::stacks::profile_with_moments;

    type Fields = Vec<(u64, u64, Vec<u8>)>;

    fn all(of: &Fields, number: u32) -> Vec<Fields> {
        let found = of.iter().filter(|field| field.0 == u64::from(number));
        found.map(|field| fields(&field.2)).collect()
    }

    fn number(of: &Fields, number: u64) -> u64 {
        of.iter().find(|field| field.0 == number).unwrap().1
    }

    #[test]
    fn each_moment_is_a_dump_that_holds_what_was_held() {
        let trace = fields(&heap_profile(&profile_with_moments(), false));
        let packets = all(&trace, PACKET);
        let profile = packets.iter().find_map(|packet| all(packet, packet::PROFILE).pop()).unwrap();
        let held: Vec<(u64, u64)> = all(&profile, profile::DUMPS)
            .iter()
            .map(|of| {
                let samples = all(of, dump::SAMPLES);
                let held = samples.iter().map(|sample| number(sample, 2) - number(sample, 3)).sum();
                (number(of, 9), held)
            })
            .collect();
        assert_eq!(held, [(10, 500), (20, 800), (30, 300)]);
    }

    #[test]
    fn every_number_that_is_used_has_a_definition() {
        let trace = fields(&heap_profile(&profile_with_moments(), false));
        let packets = all(&trace, PACKET);
        let profile = packets.iter().find_map(|packet| all(packet, packet::PROFILE).pop()).unwrap();
        let defined =
            |message| -> Vec<u64> { all(&profile, message).iter().map(|of| number(of, 1)).collect() };
        let (strings, frames) = (defined(profile::STRINGS), defined(profile::FRAMES));
        for frame in all(&profile, profile::FRAMES) {
            assert!(strings.contains(&number(&frame, 2)));
            assert!(defined(profile::MAPPINGS).contains(&number(&frame, 3)));
        }
        for stack in all(&profile, profile::CALLSTACKS) {
            assert!(stack.iter().filter(|field| field.0 == 2).all(|frame| frames.contains(&frame.1)));
        }
        for sample in all(&profile, profile::DUMPS).iter().flat_map(|of| all(of, dump::SAMPLES)) {
            assert!(defined(profile::CALLSTACKS).contains(&number(&sample, 1)));
        }
    }
}
