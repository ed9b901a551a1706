//! Gain of two programs that load the same data by one loader for both.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use radrm_base::HostUse;
use radrm_collector::dataset::Row;
use radrm_scheduler_core::interference::{HostLoad, HostSpec, host_speeds};

/// A gain below this is within the error of the formula for the host.
const MIN_GAIN: f64 = 1.1;
/// Words in the names of options that state where data are.
const NAMES: [&str; 3] = ["data", "train", "input"];

/// The data that the command line of a run names: the value of an option that is named after data, and folders without an
/// option.
fn data(row: &Row, is_folder: &impl Fn(&Path) -> bool) -> BTreeSet<PathBuf> {
    let cwd = Path::new(row.cwd.as_deref().unwrap_or("/"));
    let mut found = BTreeSet::new();
    let mut option = None;
    for word in &row.arguments {
        let (name, value) = match word.strip_prefix('-') {
            Some(rest) => match rest.split_once('=') {
                Some((name, value)) => (Some(name), value),
                None => {
                    option = Some(rest);
                    continue;
                }
            },
            None => (option.take(), word.as_str()),
        };
        let path = cwd.join(value);
        let is_named = name.is_some_and(|name| NAMES.iter().any(|part| name.to_lowercase().contains(part)));
        if (is_named && value.contains('/')) || (name.is_none() && is_folder(&path)) {
            found.insert(path);
        }
    }
    found
}

/// Returns true if the command lines of two runs name the same data.
pub(super) fn load_the_same(one: &Row, other: &Row) -> bool {
    let [one, other] = [one, other].map(|row| data(row, &|path| path.is_dir()));
    one.intersection(&other).next().is_some()
}

/// Factor by which two programs together would do more than now with one loader; `None`: no more than now.
///
/// A training drives its GPU from one thread, so the CPU time above one core counts as that of its loader. With one loader
/// for both the host carries both trainings and the larger loader, and each goes as fast as the slower of its training and
/// the loader; `now` are their speeds with a loader each.
pub(super) fn gain(one: HostUse, other: HostUse, now: [f64; 2], cores: usize) -> Option<f64> {
    let [training_one, training_other] =
        [one, other].map(|of| HostUse { cpu_milli: of.cpu_milli.min(1000), threads: 1, ..of });
    let larger = if one.cpu_milli >= other.cpu_milli { one } else { other };
    let loader = HostUse {
        cpu_milli: larger.cpu_milli.saturating_sub(1000),
        threads: larger.threads.saturating_sub(1).max(1),
        ..HostUse::default()
    };
    let loads = [training_one, training_other, loader].map(HostLoad::from);
    let [one, other, loader]: [f64; 3] =
        host_speeds(&loads, &HostSpec::of_cores(cores as f64)).try_into().ok()?;
    let gain = (one.min(loader) + other.min(loader)) / (now[0] + now[1]);
    (gain >= MIN_GAIN).then_some(gain)
}

#[cfg(test)]
mod tests {
    use super::super::host;
    use radrm_base::Bytes;

    use super::*;

    fn row(words: &[&str], cwd: &str) -> Row {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Row { cwd: Some(cwd.to_owned()), ..Row::of_command(&words, Path::new(cwd), 1) }
    }

    #[test]
    fn data_are_what_options_and_folders_of_a_command_line_name() {
        let of = |words: &[&str]| data(&row(words, "/home/a"), &|path| path == Path::new("/data/imagenet"));
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        assert_eq!(of(&["train", "--data-path", "/d/x", "--out", "/o/y"]), paths(&["/d/x"]));
        assert_eq!(of(&["train", "--train_dir=d/x", "-b", "8"]), paths(&["/home/a/d/x"]));
        assert_eq!(of(&["train", "/data/imagenet", "/data/none"]), paths(&["/data/imagenet"]));
        assert_eq!(of(&["train", "--save", "/data/imagenet", "--dataset", "cifar10"]), paths(&[]));
        assert!(load_the_same(&row(&["a", "--data", "d/x"], "/h"), &row(&["b", "--input=/h/d/x"], "/")));
        assert!(!load_the_same(&row(&["a", "--data", "d/x"], "/h"), &row(&["b", "--data", "d/x"], "/k")));
    }

    #[test]
    fn one_loader_helps_where_two_need_more_cores_than_there_are() {
        let used =
            |cpu_milli, threads| HostUse { cpu_milli, threads, resident: Bytes(1), ..HostUse::default() };
        let of = |one, other, cores| gain(one, other, host::speeds(Some(one), Some(other), cores)?, cores);
        let heavy = used(3900, 4);
        let found = of(heavy, heavy, 4).unwrap();
        // 7.8 cores of 4 before, 4.9 with one loader.
        assert!((1.3..2.0).contains(&found), "{found}");
        assert_eq!(of(heavy, heavy, 16), None, "cores for all of them");
        assert_eq!(of(used(900, 1), used(900, 1), 1), None, "no loader to share");
    }
}
