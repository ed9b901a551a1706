//! Scalars that a program wrote for TensorBoard.
//!
//! An event file is a series of records (length, checksum, an `Event` of TensorFlow's protocol buffers, checksum). Its name has the
//! number of the process that writes it, by which the files of a run are found below its working directory. Checksums are not
//! compared: a damaged record is left out where it is no `Event`, and ends the reading where its length is wrong.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use radrm_os::untrusted;

use crate::metrics::{Logged, MAX_NAMES, Metrics, add};

/// Start of the names of event files.
const PREFIX: &str = "events.out.tfevents.";

/// Folders and event files that are looked at, other entries of folders, such as pictures of a dataset, and folders below the first.
const MAX_ENTRIES: usize = 5000;
const MAX_OTHERS: usize = 500_000;
const MAX_DEPTH: usize = 6;

/// Files of a run, bytes that are read of each, and bytes of a record. Pictures and graphs are longer.
const MAX_FILES: usize = 16;
const MAX_BYTES: u64 = 64 << 20;
const MAX_RECORD: u64 = 1 << 20;

/// Adds the scalars that processes wrote below a folder since a time, seconds since 1970. What the program logged itself stays.
/// TensorBoard shows each folder as a run of its own: a tag of several folders, such as `train` and `validation`, has that name before it.
pub(crate) fn add_to(metrics: &mut Metrics, folder: &Path, pids: &BTreeSet<u32>, since_s: u64) {
    let mut found: BTreeMap<PathBuf, Metrics> = BTreeMap::new();
    for file in files(folder, pids, since_s) {
        let folder = file.parent().unwrap_or(folder).to_owned();
        read(&file, found.entry(folder).or_default());
    }
    let mut by_tag: BTreeMap<&str, Vec<(&Path, Logged)>> = BTreeMap::new();
    for (folder, own) in &found {
        for (tag, logged) in own {
            by_tag.entry(tag).or_default().push((folder.as_path(), *logged));
        }
    }
    let named = by_tag.into_iter().flat_map(|(tag, folders)| {
        let above = common(folders.iter().map(|(folder, _)| *folder));
        let name = move |folder: &Path| {
            let below = folder.strip_prefix(&above).unwrap_or(folder).to_string_lossy();
            if below.is_empty() { tag.to_owned() } else { format!("{below}/{tag}") }
        };
        folders.into_iter().map(move |(folder, logged)| (name(folder), logged))
    });
    for (name, logged) in named.take(MAX_NAMES) {
        metrics.entry(name).or_insert(logged);
    }
}

/// The lowest folder that all of these are, or are below.
fn common<'p>(mut folders: impl Iterator<Item = &'p Path>) -> PathBuf {
    let first = folders.next().map(Path::to_owned).unwrap_or_default();
    folders.fold(first, |above, folder| {
        let same = above.components().zip(folder.components()).take_while(|(one, other)| one == other);
        same.map(|(part, _)| part).collect()
    })
}

/// Event files of the processes, in the order of their names.
fn files(folder: &Path, pids: &BTreeSet<u32>, since_s: u64) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = VecDeque::from([(folder.to_owned(), 0)]);
    let (mut entries, mut others) = (MAX_ENTRIES, MAX_OTHERS);
    while let Some((folder, depth)) = folders.pop_front() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_of_events = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
            let left = if is_folder || is_of_events { &mut entries } else { &mut others };
            let Some(rest) = left.checked_sub(1) else { return sorted(found) };
            *left = rest;
            let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else { continue };
            // No links: they may lead anywhere.
            if kind.is_dir() && depth < MAX_DEPTH && !name.starts_with('.') {
                folders.push_back((entry.path(), depth + 1));
            } else if kind.is_file()
                && writer(&name).is_some_and(|(at, pid)| at >= since_s && pids.contains(&pid))
            {
                found.push(entry.path());
            }
        }
    }
    sorted(found)
}

fn sorted(mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    files.sort_unstable();
    files.truncate(MAX_FILES);
    files
}

/// Time and process that a name states: `events.out.tfevents.TIME.HOST.PID.NUMBER`, with `.v2` behind it from TensorFlow 2.
fn writer(name: &str) -> Option<(u64, u32)> {
    let rest = name.strip_prefix(PREFIX)?;
    let rest = rest.strip_suffix(".v2").unwrap_or(rest);
    let (time, rest) = rest.split_once('.')?;
    let (rest, _number) = rest.rsplit_once('.')?;
    let (_host, pid) = rest.rsplit_once('.')?;
    Some((time.parse().ok()?, pid.parse().ok()?))
}

/// Adds the scalars of a file.
fn read(path: &Path, found: &mut Metrics) {
    let Ok(file) = untrusted::open(path) else { return };
    let mut file = BufReader::new(file.take(MAX_BYTES));
    let mut record = Vec::new();
    while let Some(length) = length(&mut file) {
        // With the checksum behind it.
        let whole = length.saturating_add(4);
        let mut part = file.by_ref().take(whole);
        if length > MAX_RECORD {
            if std::io::copy(&mut part, &mut std::io::sink()).is_ok_and(|read| read == whole) {
                continue;
            }
            return;
        }
        record.clear();
        // The last record of a killed program may be short.
        if part.read_to_end(&mut record).ok().is_none_or(|read| read as u64 != whole) {
            return;
        }
        let _ = event(&record[..record.len() - 4], found);
    }
}

/// Length of the next record; `None` at the end.
fn length(file: &mut impl Read) -> Option<u64> {
    let mut head = [0; 12];
    file.read_exact(&mut head).ok()?;
    Some(u64::from_le_bytes(head[..8].try_into().ok()?))
}

/// Adds the scalars of an `Event`; `None` where it is none.
fn event(bytes: &[u8], found: &mut Metrics) -> Option<()> {
    let (mut step, mut summary) = (None, None);
    for field in Fields(bytes) {
        match field? {
            (2, Field::Number(number)) => step = Some(number.cast_signed()),
            (5, Field::Bytes(bytes)) => summary = Some(bytes),
            _ => {}
        }
    }
    for value in Fields(summary?) {
        if let (1, Field::Bytes(bytes)) = value?
            && let Some((tag, value)) = scalar(bytes)
        {
            // Proto 3 leaves out a zero.
            add(found, tag, value, step.or(Some(0)));
        }
    }
    Some(())
}

/// Name and value of a `Summary.Value`, if it is a scalar.
fn scalar(bytes: &[u8]) -> Option<(String, f64)> {
    let (mut tag, mut value) = (None, None);
    for field in Fields(bytes) {
        match field? {
            (1, Field::Bytes(text)) => tag = Some(String::from_utf8(text.to_vec()).ok()?),
            (2, Field::Fixed32(bits)) => value = Some(f64::from(f32::from_bits(bits))),
            (8, Field::Bytes(bytes)) => value = tensor(bytes),
            _ => {}
        }
    }
    Some((tag?, value?))
}

/// Value of a tensor with one number.
fn tensor(bytes: &[u8]) -> Option<f64> {
    const FLOAT: u64 = 1;
    const DOUBLE: u64 = 2;
    let (mut kind, mut content) = (0, None);
    for field in Fields(bytes) {
        match field? {
            (1, Field::Number(number)) => kind = number,
            // Bytes of the tensor, and its values in a list.
            (4..=6, Field::Bytes(bytes)) => content = Some(bytes),
            (5, Field::Fixed32(bits)) => return Some(f64::from(f32::from_bits(bits))),
            (6, Field::Fixed64(bits)) => return Some(f64::from_bits(bits)),
            _ => {}
        }
    }
    match kind {
        FLOAT => Some(f64::from(f32::from_le_bytes(content?.try_into().ok()?))),
        DOUBLE => Some(f64::from_le_bytes(content?.try_into().ok()?)),
        _ => None,
    }
}

/// Content of a field of a protocol buffer.
enum Field<'b> {
    Number(u64),
    Fixed32(u32),
    Fixed64(u64),
    Bytes(&'b [u8]),
}

/// Fields of a message with their numbers; the last one is `None` where the bytes are no message.
struct Fields<'b>(&'b [u8]);

impl<'b> Iterator for Fields<'b> {
    type Item = Option<(u64, Field<'b>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'b> Fields<'b> {
    fn field(&mut self) -> Option<(u64, Field<'b>)> {
        let key = self.number()?;
        let field = match key & 7 {
            0 => Field::Number(self.number()?),
            1 => Field::Fixed64(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.number()?).ok()?;
                Field::Bytes(self.bytes(length)?)
            }
            5 => Field::Fixed32(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((key >> 3, field))
    }

    fn bytes(&mut self, length: usize) -> Option<&'b [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A number in groups of seven bits.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record as TensorBoard writes it; checksums are not read.
    fn record(event: &[u8]) -> Vec<u8> {
        let length = (event.len() as u64).to_le_bytes();
        [&length[..], &[0xab; 4], event, &[0xcd; 4]].concat()
    }

    /// An event of step 3 (field 2) with a summary (field 5) of one value (field 1).
    fn of_value(value: &[u8]) -> Vec<u8> {
        let summary = [&[0x0a, value.len() as u8][..], value].concat();
        // The time of the event, a double, comes first.
        let head = [0x09, 0, 0, 0, 0, 0x12, 0x34, 0xda, 0x41, 0x10, 3, 0x2a, summary.len() as u8];
        [&head[..], &summary].concat()
    }

    /// `simple_value: 0.25` of the tag `loss`.
    const SIMPLE: [u8; 11] = [0x0a, 4, b'l', b'o', b's', b's', 0x15, 0, 0, 0x80, 0x3e];
    /// A tensor of the tag `acc` with `float_val: [0.5]`.
    const TENSOR: [u8; 15] = [0x0a, 3, b'a', b'c', b'c', 0x42, 8, 0x08, 1, 0x2a, 4, 0, 0, 0, 0x3f];
    /// A tensor of the tag `n` with `dtype: DT_DOUBLE` and 1.5 as its content.
    const CONTENT: [u8; 17] = [0x0a, 1, b'n', 0x42, 12, 0x08, 2, 0x22, 8, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f];

    fn of(bytes: &[u8]) -> Metrics {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, bytes).unwrap();
        let mut found = Metrics::new();
        read(&path, &mut found);
        found
    }

    #[test]
    fn scalars_of_either_form_are_read_and_damage_ends_nothing_else() {
        let whole = [&SIMPLE[..], &TENSOR, &CONTENT].map(|value| record(&of_value(value))).concat();
        let found = of(&whole);
        let values: Vec<_> =
            found.iter().map(|(name, logged)| (name.as_str(), logged.last, logged.step)).collect();
        assert_eq!(values, [("acc", 0.5, Some(3)), ("loss", 0.25, Some(3)), ("n", 1.5, Some(3))]);
        // A record that is no event, one that is long, and one that was cut.
        let long = [&(3_u64 << 20).to_le_bytes()[..], &[0; 4], &vec![0; (3 << 20) + 4]].concat();
        let bytes = [&record(&[0xff; 30])[..], &long, &whole, &whole[..20]].concat();
        assert_eq!(of(&bytes), found);
        for length in 0..whole.len() {
            let _ = of(&whole[..length]);
        }
        assert_eq!(of(&[0xff; 64]), Metrics::new(), "a length without an end");
    }

    #[test]
    fn files_of_a_run_are_found_by_the_process_that_wrote_them() {
        assert_eq!(writer("events.out.tfevents.1790000000.gpu1.lab.org.4711.0"), Some((1_790_000_000, 4711)));
        assert_eq!(writer("events.out.tfevents.1790000000.gpu1.4711.12.v2"), Some((1_790_000_000, 4711)));
        assert_eq!(writer("events.out.tfevents.x"), None);
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("runs/a");
        fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, value: &[u8]| fs::write(folder.join(name), record(&of_value(value))).unwrap();
        file("events.out.tfevents.1790000005.h.7.0", &SIMPLE);
        file("events.out.tfevents.1790000005.h.8.0", &TENSOR);
        file("events.out.tfevents.1780000005.h.7.0", &CONTENT);
        std::os::unix::fs::symlink("/", dir.path().join("link")).unwrap();
        let mut metrics = Metrics::new();
        add_to(&mut metrics, dir.path(), &[7].into(), 1_790_000_000);
        assert_eq!(metrics.keys().collect::<Vec<_>>(), ["loss"], "of this process, and of this run");
        let own = Logged { last: 9.0, min: 9.0, max: 9.0, step: None, count: 1 };
        let mut logged = Metrics::from([("loss".to_owned(), own)]);
        add_to(&mut logged, dir.path(), &[7].into(), 0);
        assert_eq!((logged["loss"], logged.len()), (own, 2), "what the program logged itself stays");
    }

    #[test]
    fn a_tag_of_several_folders_is_a_metric_of_each() {
        let dir = tempfile::tempdir().unwrap();
        let file = |folder: &str, value: &[u8]| {
            let folder = dir.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("events.out.tfevents.1790000005.h.7.0"), record(&of_value(value))).unwrap();
        };
        // `simple_value: 1` of the same tag.
        let better = [&SIMPLE[..SIMPLE.len() - 1], &[0x3f]].concat();
        file("runs/a/train", &better);
        file("runs/a/validation", &SIMPLE);
        file("runs/a", &TENSOR);
        let mut metrics = Metrics::new();
        add_to(&mut metrics, dir.path(), &[7].into(), 0);
        let values: Vec<_> =
            metrics.iter().map(|(name, logged)| (name.as_str(), logged.last, logged.count)).collect();
        assert_eq!(values, [("acc", 0.5, 1), ("train/loss", 1.0, 1), ("validation/loss", 0.25, 1)]);
    }

    #[test]
    fn pictures_of_a_dataset_do_not_hide_the_event_files() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..=MAX_ENTRIES {
            fs::write(dir.path().join(format!("{number}.png")), "").unwrap();
        }
        let folder = dir.path().join("runs");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("events.out.tfevents.1790000005.h.7.0"), record(&of_value(&SIMPLE))).unwrap();
        let mut metrics = Metrics::new();
        add_to(&mut metrics, dir.path(), &[7].into(), 0);
        assert_eq!(metrics.keys().collect::<Vec<_>>(), ["loss"]);
    }
}
