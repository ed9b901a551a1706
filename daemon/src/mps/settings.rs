//! Jobs that run under MPS without asking for it.

use radrm_limits::mps::protocol::Protocol;
use radrm_os::nvml::Gpu;
use radrm_scheduler_core::SharingMode;
use serde::de::{self, Deserialize, Deserializer};

use crate::gpu_numbers::{is_named, number};

/// The part `[mps]` of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MpsSettings {
    /// True if jobs run under MPS, as those that were submitted with `--mps` do anyway.
    pub(crate) on: bool,
    /// Numbers or UUIDs of the GPUs on which they do; none: all.
    pub(crate) gpus: Vec<String>,
    /// Names of the users whose jobs do; none: all.
    pub(crate) users: Vec<String>,
    /// Newest protocol of control daemons to use; not set: the newest that the control program has.
    #[serde(deserialize_with = "protocol")]
    pub(crate) protocol: Option<Protocol>,
    /// True if jobs with `--gpu-share` get SM partitions where protocol 3 is used.
    pub(crate) sm_partitions: bool,
}

/// Reads `""`, `"2"` or `"3"`.
fn protocol<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Protocol>, D::Error> {
    let text = String::deserialize(from)?;
    let is_set = !text.is_empty();
    is_set
        .then(|| {
            Protocol::parse(&text).map_err(|why| de::Error::custom(format!("{why}, or \"\" for the newest")))
        })
        .transpose()
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
        let is_there = |name: &String| (0..list.len()).any(|at| is_named(list, at, name));
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

    /// Returns true if MPS serves the GPU at this place of the list.
    fn serves(&self, list: &[Gpu], at: usize) -> bool {
        self.on && (self.gpus.is_empty() || self.gpus.iter().any(|name| is_named(list, at, name)))
    }

    /// Returns true if a job of this user on these GPUs of the list runs under MPS.
    pub(crate) fn holds(&self, user: &str, devices: &[String], list: &[Gpu]) -> bool {
        let is_user = self.users.is_empty() || self.users.iter().any(|name| name == user);
        let is_served =
            |uuid: &String| (0..list.len()).any(|at| list[at].uuid == *uuid && self.serves(list, at));
        self.on && is_user && !devices.is_empty() && devices.iter().all(is_served)
    }

    /// Options of the launcher for a job that runs under MPS. `share`: what it states, in thousandths.
    pub(crate) fn options(&self, share: Option<u32>, is_exclusive: bool) -> Vec<String> {
        let protocol = self.protocol.map(|protocol| format!("--mps-protocol={}", protocol.number()));
        let partition =
            (self.sm_partitions && !is_exclusive).then(|| match share.map(|share| (share / 10).max(1)) {
                Some(percent) if percent < 100 => format!("--mps-partition={percent}"),
                _ => "--mps-partition".to_owned(),
            });
        ["--mps".to_owned()].into_iter().chain(protocol).chain(partition).collect()
    }

    /// Protocol that jobs' control daemons have where this is the newest one of the control program.
    pub(crate) fn used(&self, offered: Protocol) -> Protocol {
        match (self.protocol, offered) {
            (Some(Protocol::V2), _) | (_, Protocol::V2) => Protocol::V2,
            _ => Protocol::V3,
        }
    }

    /// State of MPS on this node, in words. `offered`: the newest protocol of the control program, or why there is none.
    pub(crate) fn describe(&self, offered: Result<Protocol, String>) -> String {
        let used = match offered {
            Ok(offered) => self.used(offered),
            Err(why) => return format!("MPS: {why}, so jobs under MPS fail"),
        };
        match used {
            Protocol::V3 if self.sm_partitions => {
                "MPS by protocol 3: a server for each user, a namespace for each job, SM partitions by --gpu-share"
            }
            Protocol::V3 => "MPS by protocol 3: a server for each user, a namespace for each job",
            Protocol::V2 if self.sm_partitions => {
                "MPS by protocol 2, which has no SM partitions: --gpu-share limits the SMs that each process uses"
            }
            Protocol::V2 => "MPS by protocol 2: a control daemon for each user",
        }
        .to_owned()
    }

    /// Returns true if all jobs run under MPS, on every GPU.
    pub(crate) fn is_for_all(&self) -> bool {
        self.on && self.users.is_empty() && self.gpus.is_empty()
    }

    /// Mode in which jobs share GPUs under this protocol. Where MPS is for some users only, jobs of others come beside theirs: time
    /// slices.
    pub(crate) fn sharing(&self, offered: Option<Protocol>) -> SharingMode {
        match self.on && self.users.is_empty() {
            true if self.sm_partitions && offered.map(|offered| self.used(offered)) == Some(Protocol::V3) => {
                SharingMode::Partitions
            }
            true => SharingMode::Mps,
            false => SharingMode::TimeSlices,
        }
    }

    /// Numbers of the GPUs that MPS does not serve, where it serves others.
    pub(crate) fn time_sliced(&self, list: &[Gpu]) -> Vec<u32> {
        let places = (0..list.len()).filter(|at| self.on && !self.serves(list, *at));
        places.map(|at| number(list, at)).collect()
    }
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
        let settings =
            MpsSettings { on: true, gpus, users: names(&["ann", "bob"]), ..MpsSettings::default() };
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
        assert_eq!(off.sharing(None), SharingMode::TimeSlices);
        let all = MpsSettings { on: true, ..MpsSettings::default() };
        assert!(holds(&all, "ann", &["GPU-a", "GPU-c"]) && !holds(&all, "ann", &[]));
        assert_eq!((all.sharing(None), all.time_sliced(&list)), (SharingMode::Mps, vec![]));
        let some = MpsSettings { gpus: names(&["0", "GPU-c"]), ..all.clone() };
        assert!(holds(&some, "ann", &["GPU-a", "GPU-c"]) && !holds(&some, "ann", &["GPU-a", "GPU-b"]));
        assert_eq!(some.time_sliced(&list), [1]);
        let ann = MpsSettings { users: names(&["ann"]), ..all };
        assert!(holds(&ann, "ann", &["GPU-b"]) && !holds(&ann, "bob", &["GPU-b"]));
        assert_eq!(ann.sharing(None), SharingMode::TimeSlices);
    }

    #[test]
    fn sm_partitions_are_for_nodes_with_protocol_3_and_jobs_with_a_share() {
        let of = |text: &str| toml::from_str::<MpsSettings>(text).unwrap();
        let divided = of("on = true\nsm_partitions = true\n");
        assert_eq!(divided.sharing(Some(Protocol::V3)), SharingMode::Partitions);
        assert_eq!(divided.sharing(Some(Protocol::V2)), SharingMode::Mps);
        assert_eq!(divided.sharing(None), SharingMode::Mps, "there is no control program");
        let second = of("on = true\nsm_partitions = true\nprotocol = \"2\"\n");
        assert_eq!(second.sharing(Some(Protocol::V3)), SharingMode::Mps);
        assert_eq!(divided.options(Some(505), false), ["--mps", "--mps-partition=50"]);
        assert_eq!(divided.options(None, false), ["--mps", "--mps-partition"]);
        assert_eq!(divided.options(None, true), ["--mps"], "a GPU of its own is not divided");
        assert_eq!(second.options(Some(1), false), ["--mps", "--mps-protocol=2", "--mps-partition=1"]);
        assert_eq!(of("on = true\n").options(Some(500), false), ["--mps"]);
        assert_eq!(of("protocol = \"\"\n"), MpsSettings::default());
        let why = toml::from_str::<MpsSettings>("protocol = \"4\"\n").unwrap_err().to_string();
        assert!(why.contains("2 or 3, or"), "{why}");
    }
}
