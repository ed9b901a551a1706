//! Claims that are prepared on this node: what is on disk of them.
//!
//! Each has a folder named after its uid, with `claim.json`, which says what was granted, and `segment`, the shared
//! memory in which its processes count; and a specification of its device for the container runtime. The record is
//! written after the segment and before the specification, so a plug-in that is killed in between finds a claim that
//! is whole, or one that the kubelet asks for again. Nothing else is kept: a restart reads the folders.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use radrm_cdi::{Device, Edits, Mount, Specification};
use radrm_limits::program::libraries;
use radrm_os::nvml::uuid_bytes;
use radrm_telemetry::ledger::{Amount, Limit};
use radrm_telemetry::{CreateError, SegmentFile};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::claim::{self, Grant};
use crate::room;

/// Class of the devices: one for each claim, named after its uid.
pub const KIND: &str = "radrm.dev/claim";
/// Prefix of the specifications' names.
const PREFIX: &str = "radrm.dev-claim_";
const RECORD: &str = "claim.json";
const SEGMENT: &str = "segment";
/// Path in a container of the shared memory of its claim.
const SEGMENT_INSIDE: &str = "/run/radrm/claim/segment";

/// Reason that a claim could not be prepared or taken down, as one sentence.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum StoreError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("no limit can hold: {0}")]
    Segment(#[from] CreateError),
    #[error("no limit can hold: the GPU {0} has no UUID of the driver's form")]
    Uuid(String),
    #[error("the record cannot be written: {0}")]
    Record(#[from] serde_json::Error),
    #[error("the claim is prepared with other limits; they hold until its pods have ended")]
    Other,
    #[error(
        "{gpu} has {total} bytes, and {held} of them belong to claims that are still prepared: {holders}"
    )]
    Taken { gpu: String, total: u64, held: u64, holders: String },
}

/// Record of a claim.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Grant of the claim.
    pub grant: Grant,
    /// The control groups that the driver limits for it.
    #[serde(default)]
    groups: Vec<PathBuf>,
    /// The shim of its containers: that of the plug-in that prepared it, whose layout the segment has.
    shim: PathBuf,
}

/// Paths of the store's files.
#[derive(Clone, Debug)]
pub struct Places {
    /// The claims' folders, in memory.
    pub state: PathBuf,
    /// The specifications for container runtimes.
    pub cdi: PathBuf,
    /// The node's copy of the shim.
    pub shim: PathBuf,
    /// A list for the loader that names the shim.
    pub preload: PathBuf,
    /// Variables that containers get besides the plug-in's own.
    pub environment: Vec<String>,
    /// Memory that the driver takes for each process, bytes; 0: not known.
    pub context: u64,
    /// Memory of the node that the files of a claim may take, bytes.
    pub room: u64,
}

/// The prepared claims, by their uids.
#[derive(Debug)]
pub struct Store {
    places: Places,
    claims: BTreeMap<String, Record>,
}

impl Store {
    /// Takes up what an earlier plug-in has left, and removes what it has left half done.
    ///
    /// # Errors
    /// The folders cannot be used.
    pub fn open(places: Places) -> Result<Self, StoreError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&places.state)
            .map_err(|source| StoreError::Io { path: places.state.clone(), source })?;
        let mut store = Self { places, claims: BTreeMap::new() };
        for uid in names(&store.places.state, "")? {
            match store.read(&uid)? {
                Some(record) => {
                    store.specify(&uid, &record)?;
                    store.claims.insert(uid, record);
                }
                None => remove_room(&store.places.state.join(&uid))?,
            }
        }
        match names(&store.places.cdi, PREFIX) {
            Ok(specified) => {
                for uid in specified.iter().filter_map(|name| name.strip_suffix(".json")) {
                    if !store.claims.contains_key(uid) {
                        remove(&store.places.specification(uid))?;
                    }
                }
                // No other program writes specifications of claims, so a draft is that of a plug-in that was killed.
                store.places.remove_drafts(PREFIX)?;
            }
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(store)
    }

    /// The record of a claim that is whole; `None` if a part of it is not there or is damaged.
    ///
    /// # Errors
    /// A file cannot be read now: that shows nothing of the claim, whose containers may run.
    fn read(&self, uid: &str) -> Result<Option<Record>, StoreError> {
        let folder = self.places.state.join(uid);
        let Some(text) = there(&folder.join(RECORD), fs::read)? else { return Ok(None) };
        let Ok(record) = serde_json::from_slice::<Record>(&text) else { return Ok(None) };
        for file in [&folder.join(SEGMENT), &record.shim] {
            if !there(file, fs::metadata)?.is_some_and(|found| found.is_file()) {
                return Ok(None);
            }
        }
        Ok(claim::is_uid(uid).then_some(record))
    }

    /// The claims, with the segment of each.
    pub fn segments(&self) -> impl Iterator<Item = (&str, PathBuf)> {
        self.claims.keys().map(|uid| (uid.as_str(), self.places.state.join(uid).join(SEGMENT)))
    }

    /// Memory of the node that the files of a claim may take, bytes.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.places.room
    }

    /// Shims that containers of prepared claims have.
    pub fn shims(&self) -> impl Iterator<Item = &Path> {
        self.claims.values().map(|record| record.shim.as_path())
    }

    /// Prepares a claim, or finds it prepared. `total`: bytes of a GPU.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is left behind.
    pub fn prepare(
        &mut self,
        uid: &str,
        grant: Grant,
        total: impl Fn(&str) -> u64,
    ) -> Result<(), StoreError> {
        if let Some(record) = self.claims.get(uid) {
            if record.grant != grant {
                return Err(StoreError::Other);
            }
            return self.specify(uid, record);
        }
        for (gpu, limit) in &grant.limits {
            let others = || self.claims.values().filter(|record| record.grant.limits.contains_key(gpu));
            let held: u64 = others().filter_map(|record| record.grant.request(gpu)).sum();
            let total = total(gpu);
            let request = grant.request(gpu).unwrap_or(*limit);
            if held.saturating_add(request) > total {
                let holders: Vec<&str> = others().map(|record| record.grant.claim.as_str()).take(4).collect();
                return Err(StoreError::Taken { gpu: gpu.clone(), total, held, holders: holders.join(", ") });
            }
        }
        let record = Record { grant, groups: Vec::new(), shim: self.places.shim.clone() };
        let made = self.make(uid, &record);
        if made.is_err() {
            let _ = self.remove(uid);
        }
        made?;
        self.claims.insert(uid.to_owned(), record);
        Ok(())
    }

    /// Notes the control groups that the driver limits for a claim.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn set_groups(&mut self, uid: &str, groups: Vec<PathBuf>) -> Result<(), StoreError> {
        let Some(known) = self.claims.get_mut(uid).filter(|record| record.groups != groups) else {
            return Ok(());
        };
        let record = Record { groups, ..known.clone() };
        let path = self.places.state.join(uid).join(RECORD);
        let text = serde_json::to_string_pretty(&record)?;
        radrm_cdi::write(&path, &text).map_err(|source| StoreError::Io { path, source })?;
        // Known only when it is written: the kubelet asks again after an error.
        *known = record;
        Ok(())
    }

    /// The control groups that the driver limits for a claim.
    pub fn groups(&self, uid: &str) -> &[PathBuf] {
        self.claims.get(uid).map_or(&[], |record| &record.groups)
    }

    fn make(&self, uid: &str, record: &Record) -> Result<(), StoreError> {
        let folder = self.places.state.join(uid);
        remove_room(&folder)?;
        room::make(&folder, self.places.room)
            .map_err(|source| StoreError::Io { path: folder.clone(), source })?;
        let mut limits = Vec::new();
        let mut contexts = Vec::new();
        for (gpu, limit) in &record.grant.limits {
            let uuid = uuid_bytes(gpu).ok_or_else(|| StoreError::Uuid(gpu.clone()))?;
            limits.push(Limit { gpu: Some(uuid), amount: Amount::Bytes(*limit) });
            contexts.extend((self.places.context > 0).then_some((uuid, self.places.context)));
        }
        // Of two claims in one container the last one's variables hold: on the other one's GPUs there is no memory then,
        // and not all of it.
        limits.push(Limit { gpu: None, amount: Amount::Bytes(0) });
        SegmentFile::create_in(&folder, 0)?.publish(&folder.join(SEGMENT), &limits, &contexts)?;
        let path = folder.join(RECORD);
        let text = serde_json::to_string_pretty(record)?;
        radrm_cdi::write(&path, &text).map_err(|source| StoreError::Io { path, source })?;
        self.specify(uid, record)
    }

    /// Writes the specification of a claim's device, if it is not there.
    fn specify(&self, uid: &str, record: &Record) -> Result<(), StoreError> {
        let path = self.places.specification(uid);
        self.places.remove_drafts(&specification(uid))?;
        if path.is_file() {
            return Ok(());
        }
        let segment = self.places.state.join(uid).join(SEGMENT);
        let mut env = vec![
            format!("RADRM_SEGMENT={SEGMENT_INSIDE}"),
            format!("{}=1", radrm_limits::start::QUOTA_VARIABLE),
            // The pod's own would switch the shim off, and leave its programs without memory.
            "RADRM_DISABLE=0".to_owned(),
        ];
        env.extend(self.places.environment.iter().cloned());
        let mounts = vec![
            Mount::read_only(record.shim.clone(), radrm_cdi::library(libraries::SHIM)),
            Mount::read_only(self.places.preload.clone(), radrm_cdi::PRELOAD),
            Mount::writable_file(segment, SEGMENT_INSIDE),
        ];
        let device = Device { name: uid.to_owned(), container_edits: Edits { env, mounts } };
        let specification = Specification::new(KIND, vec![device]);
        specification.write(&path).map_err(|source| StoreError::Io { path, source })
    }

    /// Takes a claim down; one that is not there is none the less gone.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn unprepare(&mut self, uid: &str) -> Result<(), StoreError> {
        self.remove(uid)?;
        self.claims.remove(uid);
        Ok(())
    }

    /// The device first: no container is started with a claim that is half gone.
    fn remove(&self, uid: &str) -> Result<(), StoreError> {
        remove(&self.places.specification(uid))?;
        self.places.remove_drafts(&specification(uid))?;
        remove_room(&self.places.state.join(uid))
    }
}

/// Name of the file of a claim's device.
fn specification(uid: &str) -> String {
    format!("{PREFIX}{uid}.json")
}

impl Places {
    fn specification(&self, uid: &str) -> PathBuf {
        self.cdi.join(specification(uid))
    }

    /// Removes drafts of specifications that begin with this name: a disk in trouble takes neither their new name nor their
    /// removal.
    fn remove_drafts(&self, name: &str) -> Result<(), StoreError> {
        let drafts = radrm_cdi::draft(name);
        let found = match names(&self.cdi, &drafts) {
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        found.iter().try_for_each(|draft| remove(&self.cdi.join(drafts.clone() + draft)))
    }
}

/// Result of a question about a file; `None` if it is not there.
fn there<T>(path: &Path, ask: impl FnOnce(PathBuf) -> io::Result<T>) -> Result<Option<T>, StoreError> {
    match ask(path.to_owned()) {
        Ok(answer) => Ok(Some(answer)),
        // A file in place of a folder is damage, too.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(source) => Err(StoreError::Io { path: path.to_owned(), source }),
    }
}

/// Names in a folder that start with a prefix, without the prefix.
fn names(folder: &Path, prefix: &str) -> Result<Vec<String>, StoreError> {
    let io = |source| StoreError::Io { path: folder.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        found.extend(name.to_str().and_then(|name| name.strip_prefix(prefix)).map(str::to_owned));
    }
    Ok(found)
}

/// Removes the folder of a claim, with the file system in it.
fn remove_room(folder: &Path) -> Result<(), StoreError> {
    room::unmount(folder);
    remove(folder)
}

/// Removes a file or a folder, if it is there.
fn remove(path: &Path) -> Result<(), StoreError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::Io { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_could_not_be_written_are_not_known() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let places = Places {
            state: path("claims"),
            cdi: path("cdi"),
            shim: path("shim"),
            preload: path("preload"),
            environment: Vec::new(),
            context: 0,
            room: 1 << 30,
        };
        let mut store = Store::open(places).unwrap();
        let grant = Grant {
            claim: "a/b".to_owned(),
            limits: BTreeMap::new(),
            requests: BTreeMap::new(),
            devices: Vec::new(),
        };
        let record = Record { grant, groups: Vec::new(), shim: path("shim") };
        store.claims.insert("uid".to_owned(), record);
        // A file is in the place of the claim's folder.
        fs::write(path("claims/uid"), "").unwrap();
        let groups = vec![PathBuf::from("/pod")];
        for _ in 0..2 {
            assert!(store.set_groups("uid", groups.clone()).is_err());
            assert!(store.groups("uid").is_empty());
        }
        fs::remove_file(path("claims/uid")).unwrap();
        store.set_groups("uid", groups.clone()).unwrap();
        assert_eq!(store.groups("uid"), groups);
    }
}
