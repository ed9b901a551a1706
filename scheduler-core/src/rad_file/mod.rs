//! `.rad` files: what to run, and what it needs.
//!
//! Four forms are read, told apart by their content; what is not clearly one of them is refused, because a script
//! that is read as another form loses its lines:
//!
//! - **ours**: a script whose comments hold options, as batch systems have it:
//!   `#RADRM --gpus=2 --gpu-mem=12GiB`; they are handed on as they are, because they are those of a command line;
//! - **as printed in the thesis**: a comment, `conda activate ENV`, the command line, then
//!   `model: FILE`, `batch_size: N`, `policy: exclusive|collocation`;
//! - **positional**, as the thesis's code reads it: 0 comment, 1 conda activate, 2 command, 3 model
//!   file, 4 dataset, 5 batch size, 6 policy, 7 number of GPUs, then in MiB 8 the measured peak and the
//!   estimates of 9 Horus, 10 FakeTensor, 11 GPUMemNet;
//! - **a plain script** without options, known by `#!` at its beginning.

mod file;
mod foreign;
mod ours;
mod plain;
mod positional;
mod values;

pub use file::{Form, RadError, RadFile, RadOption, Run};

use file::wrong;
use values::{batch, one_line, policy};

const UNCLEAR: &str = "the file is in none of the forms that are read: to run all of it as a script, put a line \
                       `#RADRM` before its first command, or submit what runs it: `radrm submit -- bash FILE`, \
                       `radrm submit -- python3 FILE`";

impl RadFile {
    /// Reads a file.
    ///
    /// # Errors
    /// The first line that is wrong, and why.
    pub fn parse(text: &str) -> Result<Self, RadError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if let Some(at) = text.find('\0') {
            return wrong(text[..at].matches('\n').count() + 1, "there is a zero byte: this is not a text");
        }
        foreign::misspelt(text)?;
        if text.lines().any(ours::is_key_line) {
            return ours::parse(text);
        }
        foreign::other_systems(text)?;
        let lines: Vec<(usize, &str)> =
            text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())).collect();
        if lines.iter().all(|(_, line)| line.is_empty()) {
            return wrong(1, "the file is empty");
        }
        if lines.iter().any(|(_, line)| key(line).is_some()) {
            return printed(&lines);
        }
        if let Some(file) = positional::parse(&lines) {
            return file;
        }
        if plain::is_script(text) {
            return plain::parse(text);
        }
        if lines.iter().all(|(_, line)| line.is_empty() || line.starts_with('#')) {
            return wrong(3, positional::NO_COMMAND);
        }
        wrong(1, UNCLEAR)
    }
}

/// The keys of the printed form.
fn key(line: &str) -> Option<(&'static str, &str)> {
    ["model", "batch_size", "policy"].into_iter().find_map(|key| {
        let rest = line.strip_prefix(key)?.trim_start().strip_prefix(':')?;
        Some((key, without_comment(rest)))
    })
}

/// A value without the comment behind it, which begins with `#` at a blank, as in the shell.
fn without_comment(value: &str) -> &str {
    let mut marks = value.match_indices('#').map(|(at, _)| at);
    let end = marks.find(|at| value[..*at].chars().next_back().is_none_or(char::is_whitespace));
    value[..end.unwrap_or(value.len())].trim()
}

fn printed(lines: &[(usize, &str)]) -> Result<RadFile, RadError> {
    let mut commands = Vec::new();
    let (mut model, mut size, mut exclusive) = (None, None, false);
    let mut keys = false;
    for &(at, line) in lines {
        match key(line) {
            Some(("model", value)) => model = Some(value.to_owned()).filter(|value| !value.is_empty()),
            Some(("batch_size", value)) => size = Some(batch(at, value)?),
            Some((_, value)) => exclusive = policy(at, value)?,
            None if line.is_empty() || line.starts_with('#') => {}
            // As in a script that writes such lines to a file.
            None if keys => {
                return wrong(at, "a command stands behind `model:`, `batch_size:` or `policy:`");
            }
            None => {
                one_line(at, line)?;
                commands.push((at, line));
            }
        }
        keys |= key(line).is_some();
    }
    let (setup, command) = match commands.as_slice() {
        [(_, command)] => (None, *command),
        [(_, setup), (_, command)] => (Some((*setup).to_owned()), *command),
        [] => return wrong(lines.len(), "there is no command line"),
        [_, _, (at, _), ..] => return wrong(*at, "there are more lines than a set-up and a command"),
    };
    let mut file = RadFile::new(Form::Printed, Run::Line { setup, command: command.to_owned() });
    (file.model, file.batch, file.exclusive) = (model, size, exclusive);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    const PRINTED: &str = "# trains a small network\nconda activate torch\npython3 train.py --lr 0.1\n\
        model: resnet.txt\nbatch_size: 64\npolicy: collocation\n";

    const POSITIONAL: &str = "# resnet\nconda activate torch\npython3 train.py\nresnet50.txt\nimagenet\n32\n\
        exclusive\n2\n5262\n7903.9316\n40000\n16000.0\n";

    #[test]
    fn the_printed_form_is_read() {
        let file = RadFile::parse(PRINTED).unwrap();
        assert_eq!(file.form, Form::Printed);
        let setup = Some("conda activate torch".to_owned());
        assert_eq!(file.run, Run::Line { setup, command: "python3 train.py --lr 0.1".into() });
        assert_eq!(
            (file.model.as_deref(), file.batch, file.exclusive),
            (Some("resnet.txt"), Some(64), false)
        );
        assert_eq!((file.measured, file.estimates.len()), (None, 0));
    }

    #[test]
    fn comments_behind_values_are_no_part_of_them() {
        // Listing 6.1 of the thesis, as printed.
        let text = "# assumption is that model.txt file is in the same directory\n\
            conda activate tf # specifying the conda environment\n\
            python resnet.py --b 128 # command to execute\n\
            model: resnet.txt # model summary file name\nbatch_size: 128 # batch size\npolicy: exclusive\n";
        let file = RadFile::parse(text).unwrap();
        assert_eq!((file.form, file.exclusive), (Form::Printed, true));
        assert_eq!((file.model.as_deref(), file.batch), (Some("resnet.txt"), Some(128)));
        let file =
            RadFile::parse("run\nmodel:a#1.txt\t# x\npolicy: collocation # with others # too\n").unwrap();
        assert_eq!((file.model.as_deref(), file.exclusive), (Some("a#1.txt"), false));
        assert_eq!(RadFile::parse("run\nmodel: # none\n").unwrap().model, None);
        assert!(RadFile::parse("run\nbatch_size: 8 x # y\n").is_err());
    }

    #[test]
    fn the_positional_form_is_read() {
        let file = RadFile::parse(POSITIONAL).unwrap();
        assert_eq!((file.form, file.gpus, file.batch, file.exclusive), (Form::Positional, 2, Some(32), true));
        assert_eq!(file.dataset.as_deref(), Some("imagenet"));
        assert_eq!(file.measured, Some(Bytes::from_mib(5262)));
        assert_eq!(
            file.estimates.keys().collect::<Vec<_>>(),
            ["gpumemnet", "horus"],
            "40000 stands for no number"
        );
        let short: String = POSITIONAL.lines().take(3).map(|line| format!("{line}\n")).collect();
        assert_eq!(RadFile::parse(&short).unwrap().gpus, 1);
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, expected) in [
            ("", "line 1: the file is empty"),
            ("# only\n", "line 3: there is no command: the third line holds it"),
            ("model: x\n", "line 1: there is no command line"),
            ("a\nb\nc\npolicy: exclusive\n", "line 3: there are more lines than a set-up and a command"),
            ("run\npolicy: alone\n", "line 2: the policy is \"alone\"; there are exclusive and collocation"),
            ("run\nbatch_size: 0\n", "line 2: the batch size is \"0\", which is not a whole number above 0"),
            (
                "#\n\nrun\n\n\n\n\n0\n",
                "line 8: the number of GPUs is \"0\", which is not a whole number above 0",
            ),
            (
                "#\n\nrun\n\n\n\n\n1\nmuch\n",
                "line 9: the memory is \"much\", which is no number of MiB such as 5120, and no amount such as 5GiB",
            ),
            ("a\0b", "line 1: there is a zero byte: this is not a text"),
        ] {
            assert_eq!(RadFile::parse(text).unwrap_err().to_string(), expected, "{text:?}");
        }
    }
}
