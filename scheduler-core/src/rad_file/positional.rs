//! The form that the thesis's code reads: what a line says is told by its number.

use super::{Form, RadError, RadFile, Run, batch, one_line, policy, wrong};
use crate::amount;
use crate::units::Bytes;

pub(super) const NO_COMMAND: &str = "there is no command: the third line holds it";

/// Lines of this form.
const LINES: usize = 12;

/// Lines at the end may be missing, empty ones in between stand for what is not known.
fn line<'a>(lines: &[(usize, &'a str)], at: usize) -> Option<&'a str> {
    lines.get(at).map(|(_, line)| *line).filter(|line| !line.is_empty())
}

/// Reads a file of this form, or reports what is wrong with it.
/// Returns `None` if the file may just as well be a script, whose other lines would not run.
pub(super) fn parse(lines: &[(usize, &str)]) -> Option<Result<RadFile, RadError>> {
    let longer = lines.iter().skip(LINES).any(|(_, line)| !line.is_empty());
    let first = line(lines, 0).is_none_or(|line| line.starts_with('#'));
    (!longer && first && (has_figures(lines) || is_short(lines))).then(|| read(lines))
}

/// No script has lines that are nothing but a number or a policy: with one of them at its place the file is of this
/// form, also if the others are wrong.
fn has_figures(lines: &[(usize, &str)]) -> bool {
    let figures: Vec<(usize, &str)> =
        (5..LINES).filter_map(|at| line(lines, at).map(|line| (at, line))).collect();
    let right = |&(at, line): &(usize, &str)| match at {
        6 => policy(7, line).is_ok(),
        _ => line.parse::<f64>().is_ok_and(f64::is_finite),
    };
    figures.iter().any(right) && figures.iter().all(|(_, line)| !line.contains(char::is_whitespace))
}

/// A set-up and a command, at most with the model's file: as a script it would do the same.
fn is_short(lines: &[(usize, &str)]) -> bool {
    let said = |at| line(lines, at).is_some_and(|line| !line.starts_with('#'));
    let script = line(lines, 0).is_some_and(|line| line.starts_with("#!"));
    let comment = line(lines, 1).is_some_and(|line| line.starts_with('#'));
    let model = line(lines, 3).is_none_or(|line| {
        !line.contains(char::is_whitespace) && MODELS.iter().any(|ending| line.ends_with(ending))
    });
    !script && !comment && said(2) && model && lines.iter().skip(4).all(|(_, line)| line.is_empty())
}

/// Endings of the names of files with a model's summary.
const MODELS: [&str; 2] = [".model", ".txt"];

/// Placeholder in the thesis's files where an estimator gave no number, MiB.
const NO_NUMBER: f64 = 40_000.0;

fn read(lines: &[(usize, &str)]) -> Result<RadFile, RadError> {
    let line = |at| line(lines, at);
    let Some(command) = line(2).filter(|command| !command.starts_with('#')) else {
        return wrong(3, NO_COMMAND);
    };
    let setup = line(1).filter(|setup| !setup.starts_with('#'));
    for (at, line) in setup.map(|line| (2, line)).into_iter().chain([(3, command)]) {
        one_line(at, line)?;
    }
    let run = Run::Line { setup: setup.map(str::to_owned), command: command.to_owned() };
    let mut file = RadFile::new(Form::Positional, run);
    file.model = line(3).map(str::to_owned);
    file.dataset = line(4).map(str::to_owned);
    file.batch = line(5).map(|value| batch(6, value)).transpose()?;
    file.exclusive = line(6).map_or(Ok(false), |value| policy(7, value))?;
    if let Some(value) = line(7) {
        file.gpus = match value.parse() {
            Ok(gpus) if gpus > 0 => gpus,
            _ => {
                return wrong(
                    8,
                    format!("the number of GPUs is \"{value}\", which is not a whole number above 0"),
                );
            }
        };
    }
    let mib = |at: usize| -> Result<Option<Bytes>, RadError> {
        let Some(value) = line(at) else { return Ok(None) };
        match value.parse::<f64>() {
            Ok(mib) if mib.is_finite() && mib >= 0.0 => {
                Ok((mib > 0.0).then(|| Bytes((mib * f64::from(1 << 20)) as u64)))
            }
            _ => match amount::bytes_of(value) {
                Some(bytes) => Ok(Some(bytes).filter(|bytes| *bytes > Bytes::ZERO)),
                None => wrong(
                    at + 1,
                    format!(
                        "the memory is \"{value}\", which is no number of MiB such as 5120, and no amount such as 5GiB"
                    ),
                ),
            },
        }
    };
    file.measured = mib(8)?;
    for (at, name) in [(9, "horus"), (10, "faketensor"), (11, "gpumemnet")] {
        let none = line(at).and_then(|value| value.parse::<f64>().ok()) == Some(NO_NUMBER);
        if let Some(bytes) = mib(at)?.filter(|_| !none) {
            file.estimates.insert(name.to_owned(), bytes);
        }
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> Option<Form> {
        RadFile::parse(text).ok().map(|file| file.form)
    }

    #[test]
    fn memory_is_a_number_of_mib_or_an_amount_with_its_unit() {
        let file = RadFile::parse("#\n\nrun\nm\nd\n8\ncollocation\n1\n5GiB\n0GiB\n1.5GiB\n512MiB\n").unwrap();
        assert_eq!(file.measured, Some(Bytes(5 << 30)));
        let names = [("faketensor", Bytes(3 << 29)), ("gpumemnet", Bytes(512 << 20))];
        assert_eq!(
            file.estimates.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect::<Vec<_>>(),
            names
        );
    }

    #[test]
    fn files_as_the_thesis_has_them_are_positional() {
        for text in [
            "# assumption: the model is beside it\nconda activate tf\npython bert.py\nbert.model\nwiki\n32\n\
             exclusive\n1\n20774\n17456.9336\n40000\n32000",
            "#!/bin/bash\nconda activate tf\npython m.py\nm.model\nMNIST dataset\n32\nexclusive\n1\n1776\n",
            "#\n\nrun\nm\nd\n8\n",
            "#\n\nrun\n\n\n\ncollocation\n",
            "# one\nconda activate tf\npython m.py\n",
            "# one\nconda activate tf\npython m.py\nmodels/m.model\n",
            "\n\npython m.py\n",
        ] {
            assert_eq!(form(text), Some(Form::Positional), "{text}");
        }
        let file = RadFile::parse("# x\n# no set-up\nrun\nm\nd\n8\n").unwrap();
        assert_eq!(file.run, Run::Line { setup: None, command: "run".into() });
    }

    #[test]
    fn a_script_is_not_taken_for_positional() {
        for text in [
            "python3 train.py\n",
            "python3 prepare.py\npython3 train.py\n",
            "python3 prepare.py\npython3 train.py\npython3 eval.py\n",
            "# train\n# and tell\npython3 train.py\n",
            "# train\ncd /data\npython3 train.py\npython3 eval.py\n",
            "# train\npython3 a.py &\npython3 b.py &\nwait\n",
            "# train\ncd /data\npython3 train.py\n./eval.sh\n",
            "# train\ncd /data\npython3 train.py\n\nwait\n",
            "# train\ncd /data\npython3 - <<X\nprint(\n1\n)\nX\n",
            "# train\na\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\n",
            "# train\npython3 train.py \\\n  --lr 1\n",
        ] {
            let error = RadFile::parse(text).map(|file| file.run).unwrap_err().to_string();
            assert!(error.lines().count() == 1, "{text}: {error}");
            assert!(error.contains("`radrm submit -- bash FILE`") || error.contains("backslash"), "{error}");
        }
    }
}
