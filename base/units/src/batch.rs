//! The batch size that a program's command line names.

use alloc::string::String;

/// Options that set a program's batch size.
pub const OPTIONS: [&str; 8] = [
    "--batch-size",
    "--batch_size",
    "--batchsize",
    "--bs",
    "-b",
    "--per_device_train_batch_size",
    "--train-batch-size",
    "batch_size",
];

/// The batch size that a command line names, as `--bs 8`, `--bs=8` or `batch_size=8`.
#[must_use]
pub fn of_command(command: &[String]) -> Option<u32> {
    let pairs = command.windows(2).map(|two| (two[0].as_str(), two[1].as_str()));
    let joined = command.iter().filter_map(|word| word.split_once('='));
    let mut named = pairs.chain(joined).filter(|(name, _)| OPTIONS.contains(name));
    named.find_map(|(_, value)| value.parse().ok())
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn the_batch_size_is_read_from_the_command_line() {
        for (line, size) in [
            ("python t.py --batch-size 64", Some(64)),
            ("t --bs=8", Some(8)),
            ("t batch_size=4", Some(4)),
            ("t --bs many --bs=2", Some(2)),
            ("t 64", None),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(of_command(&words), size, "{line}");
        }
    }
}
