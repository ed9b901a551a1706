//! Jobs that run under MPS without asking for it.

use radrm_os::nvml::Gpu;
use radrm_scheduler_core::SharingMode;
use serde::Deserialize;

/// The part `[mps]` of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MpsSettings {
    /// True if jobs run under MPS, as those that were submitted with `--mps` do anyway.
    pub(crate) on: bool,
    /// Numbers or UUIDs of the GPUs on which they do; none: all.
    pub(crate) gpus: Vec<String>,
    /// Names of the users whose jobs do; none: all.
    pub(crate) users: Vec<String>,
}

impl MpsSettings {
    /// Users of the file that this machine does not know, a sentence each. `is_user`: what the accounts say.
    pub(crate) fn unknown_users(&self, is_user: impl Fn(&str) -> bool) -> Vec<String> {
        let unknown = self.users.iter().filter(|name| !is_user(name));
        unknown
            .map(|name| {
                format!("mps.users: this machine has no account {name:?} now, so no job of that name runs under MPS")
            })
            .collect()
    }

    /// GPUs of the file that this machine lacks, a sentence each. Where no GPU is known, none is missing.
    pub(crate) fn unknown_gpus(&self, list: &[Gpu]) -> Vec<String> {
        let is_there = |name: &String| list.iter().any(|gpu| is_named(gpu, name));
        let unknown = self.gpus.iter().filter(|name| !list.is_empty() && !is_there(name));
        unknown
            .map(|name| {
                format!(
                    "mps.gpus: this node has no GPU {name:?}: its {} GPUs have other numbers and UUIDs",
                    list.len()
                )
            })
            .collect()
    }

    /// Returns true if MPS serves this GPU.
    fn serves(&self, gpu: &Gpu) -> bool {
        self.on && (self.gpus.is_empty() || self.gpus.iter().any(|name| is_named(gpu, name)))
    }

    /// Returns true if a job of this user on these GPUs of the list runs under MPS.
    pub(crate) fn holds(&self, user: &str, devices: &[String], list: &[Gpu]) -> bool {
        let is_user = self.users.is_empty() || self.users.iter().any(|name| name == user);
        let is_served = |uuid: &String| list.iter().any(|gpu| gpu.uuid == *uuid && self.serves(gpu));
        self.on && is_user && !devices.is_empty() && devices.iter().all(is_served)
    }

    /// Returns true if all jobs run under MPS, on every GPU.
    pub(crate) fn is_for_all(&self) -> bool {
        self.on && self.users.is_empty() && self.gpus.is_empty()
    }

    /// Mode in which jobs share GPUs. Where MPS is for some users only, jobs of others come beside theirs: time slices.
    pub(crate) fn sharing(&self) -> SharingMode {
        match self.on && self.users.is_empty() {
            true => SharingMode::Mps,
            false => SharingMode::TimeSlices,
        }
    }

    /// Places in the list of GPUs that MPS does not serve, where it serves others.
    pub(crate) fn time_sliced(&self, list: &[Gpu]) -> Vec<u32> {
        let places = (0..).zip(list).filter(|(_, gpu)| self.on && !self.serves(gpu));
        places.map(|(at, _)| at).collect()
    }
}

/// Returns true if this is the GPU's number or UUID.
fn is_named(gpu: &Gpu, name: &str) -> bool {
    *name == gpu.uuid || gpu.index.is_some_and(|index| *name == index.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_there_are_reported_and_no_others() {
        let gpu = |index, uuid: &str| Gpu { index: Some(index), uuid: uuid.to_owned(), ..Gpu::default() };
        let list = [gpu(0, "GPU-a"), gpu(1, "GPU-b")];
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let gpus = names(&["1", "GPU-a", "2", "GPU-c\u{1b}"]);
        let settings = MpsSettings { on: true, gpus, users: names(&["ann", "bob"]) };
        let said = settings.unknown_gpus(&list);
        assert!(
            matches!(&said[..], [two, c] if two.contains("\"2\"") && c.contains("GPU-c\\u{1b}")),
            "{said:?}"
        );
        let said = settings.unknown_users(|name| name == "ann");
        assert!(matches!(&said[..], [bob] if bob.contains("\"bob\"")), "{said:?}");
        assert!(settings.unknown_gpus(&[]).is_empty(), "no driver is there to ask");
    }

    #[test]
    fn mps_is_for_the_gpus_and_users_that_are_named() {
        let gpu = |index, uuid: &str| Gpu { index: Some(index), uuid: uuid.to_owned(), ..Gpu::default() };
        let list = [gpu(0, "GPU-a"), gpu(1, "GPU-b"), gpu(2, "GPU-c")];
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let holds = |settings: &MpsSettings, user: &str, devices: &[&str]| {
            settings.holds(user, &names(devices), &list)
        };
        let off = MpsSettings::default();
        assert!(!holds(&off, "ann", &["GPU-a"]) && off.time_sliced(&list).is_empty());
        assert_eq!(off.sharing(), SharingMode::TimeSlices);
        let all = MpsSettings { on: true, ..MpsSettings::default() };
        assert!(holds(&all, "ann", &["GPU-a", "GPU-c"]) && !holds(&all, "ann", &[]));
        assert_eq!((all.sharing(), all.time_sliced(&list)), (SharingMode::Mps, vec![]));
        let some = MpsSettings { gpus: names(&["0", "GPU-c"]), ..all.clone() };
        assert!(holds(&some, "ann", &["GPU-a", "GPU-c"]) && !holds(&some, "ann", &["GPU-a", "GPU-b"]));
        assert_eq!(some.time_sliced(&list), [1]);
        let ann = MpsSettings { users: names(&["ann"]), ..all };
        assert!(holds(&ann, "ann", &["GPU-b"]) && !holds(&ann, "bob", &["GPU-b"]));
        assert_eq!(ann.sharing(), SharingMode::TimeSlices);
    }
}
