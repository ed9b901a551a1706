//! The file name of a profile.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Programs that run a Python script which is among their arguments.
const STARTERS: [&str; 5] = ["torchrun", "accelerate", "deepspeed", "uv", "env"];

/// Modules of Python that do so.
const STARTER_MODULES: [&str; 3] =
    ["torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"];

/// Shells whose script gives the name.
const SHELLS: [&str; 4] = ["sh", "bash", "dash", "zsh"];

/// `NAME.PID.radrm`: the name is that of the script that the command runs, without its ending, or else that of the program
/// as it was called. Characters that do not belong into a file name become `_`; very long names are cut.
pub fn file_name<W: AsRef<OsStr>>(command: &[W], pid: u32) -> String {
    let program = command.first().map_or(OsStr::new(""), AsRef::as_ref);
    let base = script(command).and_then(Script::name).unwrap_or_else(|| {
        Path::new(program).file_name().unwrap_or(OsStr::new("program")).to_string_lossy().into()
    });
    let mut name: String = base
        .chars()
        .map(|c| if c.is_control() || c == '/' || c == char::REPLACEMENT_CHARACTER { '_' } else { c })
        .collect();
    // 255 bytes is the common limit; the process id and the ending need room.
    let mut end = name.len().min(200);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    if name.starts_with('.') || name.is_empty() {
        name.insert(0, '_');
    }
    format!("{name}.{pid}.radrm")
}

/// Program text that a command runs.
enum Script {
    /// A file.
    File(PathBuf),
    /// A module of Python, by its name.
    Module(String),
}

impl Script {
    /// Its name: a file's has no ending.
    fn name(self) -> Option<String> {
        match self {
            Self::File(path) => Some(path.file_stem()?.to_str()?.to_owned()),
            Self::Module(name) => Some(name),
        }
    }
}

/// File of the script that a command runs, relative to the command's directory unless absolute; `None` if the command runs a
/// module or a program of its own.
#[must_use]
pub fn script_file<W: AsRef<OsStr>>(command: &[W]) -> Option<PathBuf> {
    match script(command)? {
        Script::File(path) => Some(path),
        Script::Module(_) => None,
    }
}

/// The script or module that a command runs; `None` if it is a program of its own.
fn script<W: AsRef<OsStr>>(command: &[W]) -> Option<Script> {
    let words: Vec<_> = command.iter().map(|word| word.as_ref().to_string_lossy()).collect();
    let (program, rest) = words.split_first()?;
    let base = Path::new(&**program).file_name()?.to_str()?;
    let rest: Vec<&str> = rest.iter().map(|word| &**word).collect();
    if is_python_file(base) {
        return Some(file(program));
    }
    if SHELLS.contains(&base) {
        return rest.first().filter(|word| !word.starts_with('-')).map(|word| file(word));
    }
    if STARTERS.contains(&base) {
        return first_python_file(&rest);
    }
    let version = base.strip_prefix("python").or_else(|| base.strip_prefix("pypy"))?;
    version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.').then_some(())?;
    of_interpreter(&rest)
}

/// Program text that Python is given to run, behind its own options.
fn of_interpreter(words: &[&str]) -> Option<Script> {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let is_cluster = word.len() > 1 && word.starts_with('-') && !word.starts_with("--");
        match word.chars().last() {
            _ if ["-W", "-X", "--check-hash-based-pycs"].contains(word) => at += 1,
            Some('c') if is_cluster => return None,
            Some('m') if is_cluster => {
                let module = *words.get(at + 1)?;
                let behind = words.get(at + 2..).unwrap_or_default();
                let is_starter = STARTER_MODULES.contains(&module);
                return is_starter
                    .then(|| first_python_file(behind))
                    .flatten()
                    .or_else(|| Some(Script::Module(module.to_owned())));
            }
            // The program comes from standard input.
            _ if *word == "-" => return None,
            _ if word.starts_with('-') => {}
            _ => return Some(file(word)),
        }
        at += 1;
    }
    None
}

fn is_python_file(word: &str) -> bool {
    word.len() > 3 && word.ends_with(".py")
}

fn first_python_file(words: &[&str]) -> Option<Script> {
    words.iter().find(|word| is_python_file(word)).map(|word| file(word))
}

fn file(path: &str) -> Script {
    Script::File(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &str) -> String {
        file_name(&command.split(' ').collect::<Vec<_>>(), 7)
    }

    #[test]
    fn the_name_is_a_file_name() {
        for (program, name) in [
            ("python", "python.7.radrm"),
            ("/usr/bin/python3.11", "python3.11.7.radrm"),
            ("./a.out", "a.out.7.radrm"),
            ("..", "program.7.radrm"),
            ("x\ny", "x_y.7.radrm"),
            (".hidden", "_.hidden.7.radrm"),
        ] {
            assert_eq!(file_name(&[program], 7), name);
        }
        assert!(file_name(&["é".repeat(500)], 7).len() < 255);
        assert_eq!(file_name::<&str>(&[], 7), "program.7.radrm");
    }

    #[test]
    fn the_file_of_a_script_is_where_the_command_says() {
        for (command, file) in [
            ("python3 -u src/train.v2.py x.py", Some("src/train.v2.py")),
            ("/home/me/train.py", Some("/home/me/train.py")),
            ("torchrun --nproc-per-node=2 a/train.py", Some("a/train.py")),
            ("bash run.sh 3", Some("run.sh")),
            ("python -um net.train --lr 1", None),
            ("python3 -c print(1) x.py", None),
            ("./a.out", None),
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(script_file(&words), file.map(PathBuf::from), "{command}");
        }
    }

    #[test]
    fn a_profile_is_named_after_the_script_and_not_its_interpreter() {
        for (command, name) in [
            ("python3 train.py --lr 0.1", "train.7.radrm"),
            ("/venv/bin/python3.12 -u -W ignore src/train.v2.py x.py", "train.v2.7.radrm"),
            ("./train.py", "train.7.radrm"),
            ("python -um net.train --lr 1", "net.train.7.radrm"),
            ("python3 -m torch.distributed.run --nproc-per-node 2 train.py", "train.7.radrm"),
            ("torchrun --nproc-per-node=2 train.py", "train.7.radrm"),
            ("accelerate launch --num_processes 2 a/train.py", "train.7.radrm"),
            ("env A=1 python3 train.py", "train.7.radrm"),
            ("bash run.sh 3", "run.7.radrm"),
            // These have no file of their own.
            ("python3 -c print(1) x.py", "python3.7.radrm"),
            ("python3 - x.py", "python3.7.radrm"),
            ("bash -c true", "bash.7.radrm"),
            ("torchrun --help", "torchrun.7.radrm"),
            ("pythonic train.py", "pythonic.7.radrm"),
            ("./server train.py", "server.7.radrm"),
            ("python3 .hidden.py", "_.hidden.7.radrm"),
        ] {
            assert_eq!(of(command), name, "{command}");
        }
    }
}
