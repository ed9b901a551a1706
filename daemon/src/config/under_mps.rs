//! Defaults of a node on which all jobs run under MPS.

use radrm_scheduler_core::{Bytes, Policy, Settings, Unknown};
use serde_json::Value;

/// Memory that a job of unknown need finds free there, GiB: with less, jobs harmed others in replays (docs/default-settings.md).
const MIN_FREE_GIB: u64 = 8;

/// Lets jobs of unknown need join others, unless the text of the file says what becomes of them.
pub(super) fn apply(settings: &mut Settings, text: &str) {
    // The text was understood before.
    let stated: Value = toml::from_str(text).unwrap_or_default();
    let states = |key: &str| stated.pointer(key).is_some();
    if settings.policy != Policy::Aware || states("/scheduler/unknown") {
        return;
    }
    settings.unknown = Unknown::MinFree;
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
        assert_eq!(of("[mps]\non = true\n"), (joins, Bytes::from_gib(8)));
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
}
