//! Files a replay reads.

use std::io::{BufReader, Read, Seek};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use radrm_emulator_machine::Models;
use radrm_os::untrusted;
use radrm_scheduler_core::rad_file::RadError;
use radrm_scheduler_core::replay::{Cluster, Mode, read as traces};
use radrm_scheduler_core::{Bytes, Device, DeviceId, NodeId};

use crate::Failure;
use crate::client::text::open_named;
use crate::error::{FileProblem, UsageError};

/// Most bytes of a table, also unpacked: the largest published traces have some hundred MB.
const MAX_BYTES: usize = 512 << 20;
/// Most bytes of a file that people write.
const MAX_WRITTEN: usize = 16 << 20;
/// Most bytes and lines of a table or log that another user has made.
pub(super) const MAX_OTHERS: (usize, usize) = (8 << 20, 50_000);
/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;

/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A table's text, unpacked where its first bytes are those of gzip.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    text_of(path, MAX_BYTES)
}

/// Text of a file that people write.
pub(super) fn written(path: &Path) -> Result<String, Failure> {
    text_of(path, MAX_WRITTEN)
}

fn text_of(path: &Path, most: usize) -> Result<String, Failure> {
    let mut file = open_named(path).map_err(|problem| problem.of(path))?;
    let io = |error| FileProblem::Io(error).of(path);
    let most = if untrusted::is_others(&file) { MAX_OTHERS } else { (most, usize::MAX) };
    let mut start = Vec::new();
    (&mut file).take(GZIP.len() as u64).read_to_end(&mut start).map_err(io)?;
    let whole = BufReader::new(start.as_slice().chain(&file));
    if start == GZIP {
        // What is packed is not kept.
        let unpacked = read(MultiGzDecoder::new(whole), most, FileProblem::Gzip);
        return unpacked.map_err(|problem| problem.of(path));
    }
    read(whole, most, FileProblem::Io).map_err(|problem| problem.of(path))
}

/// Error of a table that is longer than may be read of it.
pub(super) fn too_large((bytes, lines): (usize, usize)) -> FileProblem {
    match lines {
        usize::MAX => FileProblem::TooLarge(Bytes(bytes as u64)),
        _ => FileProblem::OthersTooLarge { bytes: Bytes(bytes as u64), lines },
    }
}

/// Reads text of so many bytes and lines at most. Zeros are none: what is read ends at the first, not when there is no more
/// room for them.
fn read(
    mut from: impl Read,
    most: (usize, usize),
    problem: fn(std::io::Error) -> FileProblem,
) -> Result<String, FileProblem> {
    let (mut bytes, mut lines) = (Vec::new(), 0);
    loop {
        let before = bytes.len();
        (&mut from).take(PIECE).read_to_end(&mut bytes).map_err(problem)?;
        let more = &bytes[before..];
        lines += more.iter().filter(|byte| **byte == b'\n').count();
        if bytes.len() > most.0 || lines > most.1 {
            return Err(too_large(most));
        }
        if more.contains(&0) {
            return Err(FileProblem::NotText);
        }
        if more.is_empty() {
            return String::from_utf8(bytes).map_err(|_| FileProblem::NotText);
        }
    }
}

/// The beginning of a file's text, also of a gzipped one; nothing if it cannot be read.
pub(crate) fn beginning(path: &Path) -> String {
    const LENGTH: u64 = 256;
    let Ok(mut file) = open_named(path) else { return String::new() };
    let (mut start, mut text) = ([0; 2], Vec::new());
    let packed = file.read_exact(&mut start).is_ok() && start == GZIP;
    let read = file.rewind().and_then(|()| match packed {
        true => MultiGzDecoder::new(file).take(LENGTH).read_to_end(&mut text),
        false => file.take(LENGTH).read_to_end(&mut text),
    });
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&text).into_owned())
}

/// Parts of a TOML file on top of what is the default.
pub(crate) fn toml<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let text = text_of(path, MAX_WRITTEN)?;
    toml::from_str(&text).map_err(|error| {
        let line =
            error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let what = radrm_text::explained(error.message());
        FileProblem::Rad(RadError { line, what }).of(path)
    })
}

/// Devices: so many of models that are known, or the nodes of a file.
pub(super) fn cluster(spec: &str, mode: Mode) -> Result<Cluster, Failure> {
    let path = Path::new(spec);
    let cluster = if path.is_file() {
        traces::openb_nodes(&text(path)?).map_err(|error| FileProblem::Trace(error).of(path))?
    } else {
        named(spec)?
    };
    if cluster.devices.is_empty() {
        return Err(FileProblem::Nothing("GPUs").of(path));
    }
    // Two halves: 3g.20gb on an A100 40 GB. Of three sevenths of the SMs and half of the memory.
    let half = cluster.devices.iter().map(|device| device.capacity).min().unwrap_or_default();
    Ok(if mode == Mode::Mig { cluster.divided(2, Bytes(half.0 / 2)) } else { cluster })
}

/// `4xA100-40GB+2xT4`: all in one machine.
pub(super) fn named(spec: &str) -> Result<Cluster, Failure> {
    const MAX_DEVICES_NAMED: usize = traces::MAX_DEVICES;
    let models = Models::known()?;
    let mut cluster = Cluster::default();
    for part in spec.split('+').map(str::trim) {
        let (count, name) = match part.split_once('x') {
            Some((count, name)) if count.bytes().all(|byte| byte.is_ascii_digit()) && !count.is_empty() => {
                (count.parse::<usize>().unwrap_or(usize::MAX), name)
            }
            _ => (1, part),
        };
        let Some(gpu) = models.find(name) else {
            return Err(UsageError::NoModel { name: name.to_owned(), models: models.names() }.into());
        };
        if count == 0 || count.saturating_add(cluster.devices.len()) > MAX_DEVICES_NAMED {
            return Err(UsageError::TooManyGpus { part: part.to_owned(), most: MAX_DEVICES_NAMED }.into());
        }
        for _ in 0..count {
            cluster.devices.push(Device {
                id: DeviceId(u32::try_from(cluster.devices.len()).unwrap_or(u32::MAX)),
                node: NodeId(0),
                model: gpu.id.clone(),
                capacity: Bytes(gpu.memory_bytes()),
                parent: None,
                shared: true,
            });
        }
    }
    Ok(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Text or zeros without an end.
    struct Endless {
        byte: u8,
        given: usize,
    }

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            buffer.fill(self.byte);
            self.given += buffer.len();
            Ok(buffer.len())
        }
    }

    #[test]
    fn no_more_than_the_stated_bytes_are_read() {
        let mut zeros = Endless { byte: 0, given: 0 };
        let most = (MAX_BYTES, usize::MAX);
        assert!(matches!(read(&mut zeros, most, FileProblem::Io), Err(FileProblem::NotText)));
        assert!(zeros.given as u64 <= 2 * PIECE, "{} bytes", zeros.given);
        let mut text = Endless { byte: b'x', given: 0 };
        let most = 16 * PIECE as usize;
        let why = read(&mut text, (most, usize::MAX), FileProblem::Io).unwrap_err().to_string();
        assert_eq!(why, "more than 16.0 MiB");
        assert!(text.given <= most + 2 * PIECE as usize, "{} bytes", text.given);
    }

    #[test]
    fn of_another_users_table_less_is_read_and_the_bound_is_stated() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        // Below a folder of its own: in one that all may write, the kernel keeps root from writing a file of another user.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        for long in ["x".repeat(9 << 20), "5\n".repeat(60_000)] {
            std::fs::write(&path, &long).unwrap();
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
            assert_eq!(text(&path).unwrap(), long);
            std::os::unix::fs::chown(&path, Some(64_004), None).unwrap();
            let why = text(&path).unwrap_err().to_string();
            let bound = ": more than 8.00 MiB or 50000 lines, the most that is read of another user's table: copy the \
                         file, or read it as its owner";
            assert!(why.ends_with(bound), "{why}");
        }
        std::fs::write(&path, "runtime\n5\n").unwrap();
        assert_eq!(text(&path).unwrap(), "runtime\n5\n");
    }

    #[test]
    fn gzipped_files_are_read_and_broken_ones_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.gz");
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(b"runtime\n5\n").unwrap();
        let packed = packed.finish().unwrap();
        std::fs::write(&path, &packed).unwrap();
        assert_eq!(text(&path).unwrap(), "runtime\n5\n");
        std::fs::write(&path, &packed[..packed.len() - 6]).unwrap();
        let why = |path: &Path| text(path).unwrap_err().to_string();
        assert!(why(&path).contains("no whole gzip file"));
        std::fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
        assert!(why(&path).ends_with(": not text"));
        assert!(why(&dir.path().join("none")).contains("none: No such file"));
    }

    #[test]
    fn of_a_small_gzip_file_no_more_than_the_stated_bytes_are_unpacked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.gz");
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all("5\n".repeat(32 << 20).as_bytes()).unwrap();
        let packed = packed.finish().unwrap();
        assert!(packed.len() < 1 << 20, "{} bytes", packed.len());
        std::fs::write(&path, packed).unwrap();
        let why = text_of(&path, 1 << 20).unwrap_err().to_string();
        assert!(why.ends_with("t.gz: more than 1.00 MiB"), "{why}");
    }

    #[test]
    fn devices_are_found_by_model() {
        let four = cluster("4xA100-40GB", Mode::Mps).unwrap();
        assert_eq!(four.devices.len(), 4);
        assert_eq!(four.devices[0].capacity, Bytes::from_gib(40));
        assert_eq!(cluster("1xA100-40GB", Mode::Mig).unwrap().devices.len(), 3);
        assert!(cluster("4xB9000", Mode::Mps).unwrap_err().to_string().starts_with("--gpus: "));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nodes.csv");
        std::fs::write(&path, "sn,cpu_milli,memory_mib,gpu,model\na,1,1,999999999999,G\n").unwrap();
        let why = cluster(path.to_str().unwrap(), Mode::Mps).unwrap_err().to_string();
        assert!(why.ends_with("nodes.csv: there are more than 1000000 GPUs in it"), "{why}");
    }
}
