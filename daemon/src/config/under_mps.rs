//! Defaults of a node on which all jobs run under MPS.

use radrm_scheduler_core::{Activity, Bytes, Permille, Policy, Settings, Unknown};
use serde_json::Value;

/// Memory that a job of unknown need finds free there, GiB: with less, more of them run out of it (docs/default-settings.md).
const MIN_FREE_GIB: u64 = 14;

/// Activity that is assumed of a job that was never seen: with more, two of them rarely share a GPU (docs/default-settings.md).
const ASSUMED: Activity = Activity { smact: Permille(400), smocc: Permille(185), drama: Permille(246) };

/// Lets jobs of unknown need join others, unless the text of the file says what becomes of them.
pub(super) fn apply(settings: &mut Settings, text: &str) {
    // The text was understood before.
    let stated: Value = toml::from_str(text).unwrap_or_default();
    let states = |key: &str| stated.pointer(key).is_some();
    if settings.policy != Policy::Aware || states("/scheduler/unknown") {
        return;
    }
    settings.unknown = Unknown::MinFree;
    if !states("/scheduler/assumed") {
        settings.assumed = ASSUMED;
    }
    if !states("/scheduler/preconditions/min_free") {
        settings.preconditions.min_free = Bytes::from_gib(MIN_FREE_GIB);
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use radrm_scheduler_core::{Bytes, Unknown};

    #[test]
    fn where_all_jobs_run_under_mps_one_of_unknown_need_joins_others() {
        let of = |text: &str| {
            let settings = Config::parse(text).unwrap().scheduler;
            (settings.unknown, settings.preconditions.min_free)
        };
        let (alone, joins) = (Unknown::Exclusive, Unknown::MinFree);
        let usual = Bytes::from_gib(5);
        assert_eq!(of("[mps]\non = true\n"), (joins, Bytes::from_gib(14)));
        for text in [
            "",
            "[mps]\non = false\n",
            "[mps]\non = true\nusers = [\"a\"]\n",
            "[mps]\non = true\ngpus = [\"0\"]\n",
        ] {
            assert_eq!(of(text), (alone, usual), "{text}");
        }
        let stated = "[mps]\non = true\n[scheduler]\n";
        assert_eq!(of(&format!("{stated}unknown = \"exclusive\"\n")), (alone, usual));
        assert_eq!(
            of(&format!("{stated}[scheduler.preconditions]\nmin_free = \"3GiB\"\n")),
            (joins, Bytes::from_gib(3))
        );
        assert_eq!(of(&format!("{stated}policy = \"magm\"\n")), (alone, usual));
    }

    #[test]
    fn where_all_jobs_run_under_mps_an_unseen_job_is_assumed_to_leave_room_for_another() {
        let of = |text: &str| Config::parse(text).unwrap().scheduler.assumed.smact.0;
        assert_eq!((of("[mps]\non = true\n"), of("")), (400, 650));
        let own = "[scheduler.assumed]\nsmact = 700\nsmocc = 300\ndrama = 400\n";
        assert_eq!(of(&format!("[mps]\non = true\n{own}")), 700);
        assert_eq!(of("[mps]\non = true\n[scheduler]\nunknown = \"exclusive\"\n"), 650);
    }
}
