//! Units of the processor that count, as the kernel describes them below `/sys/bus/event_source/devices`
//! (`Documentation/ABI/testing/sysfs-bus-event_source-devices-events` and `-format`). No model of processor is known here.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use radrm_os::untrusted;

use super::event::EventCode;

/// Most bytes of a file of the kernel's there: a page.
const MAX_BYTES: usize = 4096;
/// Most processors of a unit's mask, one for each socket or cluster.
const MAX_PROCESSORS: usize = 64;
/// Most units of one system that are looked at.
const MAX_UNITS: usize = 1024;
/// Most events of a unit that are looked at.
const MAX_EVENTS: usize = 1024;

/// A unit that counts.
#[derive(Debug)]
pub(super) struct Unit {
    folder: PathBuf,
    kind: u32,
    /// Processors that read it, each for the part of the system beside it.
    pub(super) processors: Vec<u32>,
}

/// Names of units of a kind: `uncore_imc` and `uncore_imc_7`, but not `uncore_imc_free_running_0`. Sorted.
pub(super) fn names(devices: &Path, kind: &str) -> Vec<String> {
    let is_of_kind = |name: &String| {
        name.strip_prefix(kind).is_some_and(|rest| {
            let number = rest.strip_prefix('_').unwrap_or("-");
            rest.is_empty() || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        })
    };
    let mut names: Vec<String> = entries(devices, MAX_UNITS).into_iter().filter(is_of_kind).collect();
    names.sort_unstable();
    names
}

impl Unit {
    /// Reads the unit of this folder. `None`: the kernel does not describe it so that it can be opened.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let kind = text(&folder.join("type"))?.parse().ok()?;
        let processors = processors(&text(&folder.join("cpumask"))?)?;
        Some(Self { folder: folder.to_owned(), kind, processors })
    }

    /// Events of a name: that one, or its parts (`NAME_sch0`, `NAME_sch1`) where the kernel has no sum of them.
    /// `bytes`: what one count stands for where the kernel gives neither scale nor unit. `None`: one of them cannot be
    /// counted in bytes, or there is none.
    pub(super) fn events(&self, name: &str, bytes: Option<f64>) -> Option<Vec<(EventCode, f64)>> {
        let folder = self.folder.join("events");
        let mut names = vec![name.to_owned()];
        if text(&folder.join(name)).is_none() {
            let part = |found: &String| {
                found.strip_prefix(name).is_some_and(|rest| rest.starts_with('_')) && !found.contains('.')
            };
            names = entries(&folder, MAX_EVENTS).into_iter().filter(part).collect();
            names.sort_unstable();
        }
        let event = |name: &String| {
            let code = self.code(&text(&folder.join(name))?)?;
            Some((code, weight(&folder, name, bytes)?))
        };
        let events: Vec<_> = names.iter().map(event).collect::<Option<_>>()?;
        (!events.is_empty()).then_some(events)
    }

    /// The code of an event by its terms, as `event=0x04,umask=0x03`.
    fn code(&self, terms: &str) -> Option<EventCode> {
        let mut code = EventCode { kind: self.kind, ..EventCode::default() };
        for term in terms.split(',') {
            let (name, value) = term.split_once('=').unwrap_or((term, "1"));
            let (name, value) = (name.trim(), number(value.trim())?);
            if name.is_empty() || name.contains(['/', '.']) {
                return None;
            }
            let field = match text(&self.folder.join("format").join(name)) {
                Some(format) => Field::of(&format)?,
                None => Field::whole(name)?,
            };
            field.put(value, &mut code.config)?;
        }
        Some(code)
    }
}

/// Bits of one of the three words of an event's code, the lowest first.
#[derive(Debug, PartialEq, Eq)]
struct Field {
    word: usize,
    bits: Vec<RangeInclusive<u32>>,
}

impl Field {
    /// A field by the kernel's description, as `config:0-7,21`.
    fn of(format: &str) -> Option<Self> {
        let (word, list) = format.trim().split_once(':')?;
        let mut field = Self { bits: Vec::new(), ..Self::whole(word)? };
        for part in list.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            if first > last || last > 63 || field.bits.len() == 64 {
                return None;
            }
            field.bits.push(first..=last);
        }
        Some(field)
    }

    /// One of the words as a whole, by its name.
    fn whole(word: &str) -> Option<Self> {
        let word = ["config", "config1", "config2"].iter().position(|name| *name == word)?;
        Some(Self { word, bits: vec![0..=63] })
    }

    /// Puts a value's bits into their places. `None`: it has more of them than the field.
    fn put(&self, mut value: u64, config: &mut [u64; 3]) -> Option<()> {
        let word = config.get_mut(self.word)?;
        for bit in self.bits.iter().cloned().flatten() {
            *word |= (value & 1) << bit;
            value >>= 1;
        }
        (value == 0).then_some(())
    }
}

/// Bytes that one count stands for.
fn weight(events: &Path, name: &str, unscaled: Option<f64>) -> Option<f64> {
    let file = |suffix: &str| {
        let path = events.join(format!("{name}.{suffix}"));
        path.exists().then(|| text(&path).unwrap_or_default())
    };
    let weight = match (file("scale"), file("unit")) {
        (None, None) => unscaled?,
        (scale, Some(unit)) => scale.map_or(Some(1.0), |scale| scale.parse::<f64>().ok())? * bytes_of(&unit)?,
        (Some(_), None) => return None,
    };
    // A count stands for a line or a beat. What is far from that is no file of the kernel's.
    (0.1..=1e9).contains(&weight).then_some(weight)
}

fn bytes_of(unit: &str) -> Option<f64> {
    let known = [
        ("B", 1.0),
        ("Bytes", 1.0),
        ("bytes", 1.0),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("KiB", 1024.0),
        ("MiB", 1024.0 * 1024.0),
        ("GiB", 1024.0 * 1024.0 * 1024.0),
    ];
    known.iter().find_map(|(name, bytes)| (*name == unit).then_some(*bytes))
}

/// A list of processors, as `0,28` or `0-3`.
fn processors(list: &str) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || (last - first) as usize >= MAX_PROCESSORS - found.len() {
            return None;
        }
        found.extend(first..=last);
    }
    Some(found)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Names in a folder, some of them at most.
fn entries(folder: &Path, most: usize) -> Vec<String> {
    let found = fs::read_dir(folder).into_iter().flatten().take(most);
    found.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// A short text of the file system.
fn text(path: &Path) -> Option<String> {
    let text = String::from_utf8(untrusted::read(path, MAX_BYTES).ok()?).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(files: &[(&str, &str)]) -> (tempfile::TempDir, Option<Unit>) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let unit = Unit::read(root.path());
        (root, unit)
    }

    fn field(format: &str, value: u64) -> Option<[u64; 3]> {
        let mut config = [0; 3];
        Field::of(format)?.put(value, &mut config)?;
        Some(config)
    }

    #[test]
    fn a_value_is_put_into_the_bits_that_the_format_names() {
        assert_eq!(field("config:0-7", 0x04), Some([4, 0, 0]));
        assert_eq!(field("config:0-7,21", 0x1ff), Some([0xff | 1 << 21, 0, 0]));
        assert_eq!(field("config:8-15\n", 0x03), Some([0x300, 0, 0]));
        assert_eq!(field("config1:0-63", u64::MAX), Some([0, u64::MAX, 0]));
        assert_eq!(field("config2:3", 1), Some([0, 0, 8]));
        // The event's number of AMD: its upper four bits lie apart.
        assert_eq!(field("config:0-7,32-35", 0xa1f), Some([0x1f | 0xa << 32, 0, 0]));
    }

    #[test]
    fn a_format_or_value_without_a_meaning_is_no_event() {
        for format in [
            "",
            "config",
            "config:",
            "config:8-7",
            "config:0-64",
            "config:-1",
            "config3:0-7",
            "config:0-7,",
            "config:a",
            "config:0-99999999999999999999",
        ] {
            assert_eq!(field(format, 0), None, "{format}");
        }
        assert_eq!(field("config:0-7", 0x100), None, "more bits than the field has");
        let long = format!("config:{}", vec!["1"; 65].join(","));
        assert_eq!(field(&long, 0), None, "more parts than a word has bits");
    }

    #[test]
    fn an_event_is_its_terms_and_a_word_as_a_whole() {
        let (_root, unit) = unit(&[
            ("type", "13\n"),
            ("cpumask", "0,28\n"),
            ("format/event", "config:0-7\n"),
            ("format/umask", "config:8-15\n"),
            ("format/edge", "config:18\n"),
        ]);
        let unit = unit.unwrap();
        assert_eq!(unit.processors, [0, 28]);
        let code = |terms: &str| unit.code(terms).map(|code| (code.kind, code.config));
        assert_eq!(code("event=0x04,umask=0x03"), Some((13, [0x304, 0, 0])));
        assert_eq!(code("event=255,umask=16,edge"), Some((13, [0x4_10ff, 0, 0])));
        assert_eq!(code("config=0x304,config1=0x7"), Some((13, [0x304, 7, 0])));
        for terms in ["", "event=0x1ff", "event=?", "event=-1", "other=1", "../type=1", "event=0x4,,"] {
            assert_eq!(code(terms), None, "{terms}");
        }
    }

    #[test]
    fn bytes_of_a_count_are_scale_and_unit_or_what_stands_for_both() {
        let intel = [("e/r.scale", "6.103515625e-5\n"), ("e/r.unit", "MiB\n")];
        let bytes = |files: &[(&str, &str)], unscaled| {
            let (root, _) = unit(files);
            weight(&root.path().join("e"), "r", unscaled)
        };
        assert_eq!(bytes(&intel, Some(1.0)), Some(64.0));
        assert_eq!(bytes(&[("e/other", "")], Some(32.0)), Some(32.0));
        assert_eq!(bytes(&[("e/other", "")], None), None);
        assert_eq!(bytes(&[("e/r.unit", "Bytes")], None), Some(1.0));
        for scale in ["", "nan", "inf", "-1", "0", "1e300", "x", "9".repeat(5000).as_str()] {
            let files = [("e/r.scale", scale), ("e/r.unit", "MiB")];
            assert_eq!(bytes(&files, Some(64.0)), None, "{scale:.20}: a broken scale is not guessed");
        }
        for unit in ["", "Joules", "mib", "MiB MiB"] {
            let files = [("e/r.scale", "1"), ("e/r.unit", unit)];
            assert_eq!(bytes(&files, Some(64.0)), None, "{unit}");
        }
        assert_eq!(bytes(&[("e/r.scale", "64")], Some(64.0)), None, "a scale of what?");
    }

    #[test]
    fn a_mask_has_processors_and_is_bounded() {
        assert_eq!(processors("0"), Some(vec![0]));
        assert_eq!(processors("0-2,28"), Some(vec![0, 1, 2, 28]));
        for list in ["", "x", "3-1", "0-4294967295", "0-64", "0-40,41-80", "-1", "1,"] {
            assert_eq!(processors(list), None, "{list}");
        }
        let (_root, broken) = unit(&[("type", "0x13"), ("cpumask", "0")]);
        assert!(broken.is_none());
        let (_root, without) = unit(&[("type", "13")]);
        assert!(without.is_none(), "no processor reads it");
    }

    #[test]
    fn a_kind_has_its_numbered_units_only() {
        let root = tempfile::tempdir().unwrap();
        for name in
            ["uncore_imc", "uncore_imc_10", "uncore_imc_", "uncore_imc_free_running_0", "uncore_imcx", "x"]
        {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        assert_eq!(names(root.path(), "uncore_imc"), ["uncore_imc", "uncore_imc_10"]);
        assert_eq!(names(root.path(), "uncore_imc_free_running"), ["uncore_imc_free_running_0"]);
        assert!(names(&root.path().join("none"), "uncore_imc").is_empty());
    }
}
