//! NVIDIA's own libraries and MPS daemon, where `cargo xtask genuine` has unpacked them.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};

use crate::artifacts;

/// The generations whose answers are recorded in `data/genuine/`, oldest first.
const RECORDED: [&str; 3] = ["535", "550", "555"];

/// One generation of the genuine driver.
pub struct Generation {
    /// First part of its version, such as `555`.
    pub name: String,
    folder: PathBuf,
}

impl Generation {
    /// The folder of its libraries.
    pub fn libraries(&self) -> PathBuf {
        self.folder.join("usr/lib/x86_64-linux-gnu/nvidia/current")
    }

    /// The folder of the MPS control program.
    pub fn programs(&self) -> PathBuf {
        self.folder.join("usr/bin")
    }
}

/// The generations that are there, oldest first. Without `RADRM_TEST_GENUINE_ALL` only the newest, for the suite's
/// time. None, reported on standard error, where they could not be fetched.
pub fn generations() -> Vec<Generation> {
    let folder = env::var_os("RADRM_TEST_GENUINE")
        .map_or_else(|| artifacts::workspace().join("target/genuine"), PathBuf::from);
    let is_driver =
        |folder: &Path| folder.join("usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1").exists();
    let mut found: Vec<Generation> = fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| is_driver(&entry.path()))
        .map(|entry| Generation {
            name: entry.file_name().to_string_lossy().into_owned(),
            folder: entry.path(),
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    if found.is_empty() {
        eprintln!("skipped: no genuine driver in {} (cargo xtask genuine)", folder.display());
    } else if env::var_os("RADRM_TEST_GENUINE_ALL").is_none() {
        found.drain(..found.len() - 1);
    }
    found
}

/// Answers of the genuine driver of a generation: itself, where it is, and otherwise what was recorded of it.
pub struct Oracle {
    /// First part of the driver's version, such as `555`.
    pub name: &'static str,
    genuine: Option<Generation>,
}

impl Oracle {
    /// Answers of the genuine driver, a line each, by `ask` where it is here. `what` names the record.
    ///
    /// # Panics
    /// What was recorded is not what the driver answers. With `RADRM_TEST_GENUINE_RECORD` it is recorded anew.
    pub fn answers(&self, what: &str, ask: impl FnOnce(&Generation) -> Vec<String>) -> Vec<String> {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("data/genuine/{}/{what}.gz", self.name));
        let Some(genuine) = &self.genuine else {
            eprintln!("driver {} is not here: its recorded answers are used ({what})", self.name);
            return read(&file);
        };
        let said = ask(genuine);
        if env::var_os("RADRM_TEST_GENUINE_RECORD").is_some() {
            write(&file, &said);
        }
        let all: BTreeSet<&String> = said.iter().collect();
        let recorded = read(&file);
        let stale: Vec<&String> = recorded.iter().filter(|line| !all.contains(line)).take(5).collect();
        assert!(
            stale.is_empty() && !recorded.is_empty(),
            "{}: driver {} no longer answers {stale:#?}: `cargo xtask genuine --record`",
            file.display(),
            self.name
        );
        said
    }
}

/// An oracle for each recorded generation. Without `RADRM_TEST_GENUINE_ALL` only for the newest.
pub fn oracles() -> Vec<Oracle> {
    let mut here = generations();
    let asked = if env::var_os("RADRM_TEST_GENUINE_ALL").is_some() { 0 } else { RECORDED.len() - 1 };
    let oracle = |name: &&'static str| Oracle {
        name,
        genuine: here.iter().position(|found| found.name == *name).map(|at| here.swap_remove(at)),
    };
    RECORDED[asked..].iter().map(oracle).collect()
}

fn read(file: &Path) -> Vec<String> {
    let mut text = String::new();
    let opened = fs::File::open(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    GzDecoder::new(opened).read_to_string(&mut text).expect("a record");
    text.lines().map(str::to_owned).collect()
}

fn write(file: &Path, lines: &[String]) {
    fs::create_dir_all(file.parent().expect("a folder")).expect("folder of records");
    let mut packed = GzEncoder::new(fs::File::create(file).expect("record"), Compression::best());
    packed.write_all(lines.join("\n").as_bytes()).expect("record");
    packed.finish().expect("record");
}
