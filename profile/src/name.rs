//! The file name of a profile.

use std::ffi::OsStr;
use std::path::Path;

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
    let base = script(command).unwrap_or_else(|| {
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

/// Name of the script or module that a command runs; `None` if it is a program of its own.
fn script<W: AsRef<OsStr>>(command: &[W]) -> Option<String> {
    let words: Vec<_> = command.iter().map(|word| word.as_ref().to_string_lossy()).collect();
    let (program, rest) = words.split_first()?;
    let base = Path::new(&**program).file_name()?.to_str()?;
    let rest: Vec<&str> = rest.iter().map(|word| &**word).collect();
    if is_python_file(base) {
        return stem(base);
    }
    if SHELLS.contains(&base) {
        return rest.first().filter(|word| !word.starts_with('-')).and_then(|word| stem(word));
    }
    if STARTERS.contains(&base) {
        return first_python_file(&rest);
    }
    let version = base.strip_prefix("python").or_else(|| base.strip_prefix("pypy"))?;
    version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.').then_some(())?;
    of_interpreter(&rest)
}

/// Name of what Python is given to run, behind its own options.
fn of_interpreter(words: &[&str]) -> Option<String> {
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
                    .or_else(|| Some(module.to_owned()));
            }
            // The program comes from standard input.
            _ if *word == "-" => return None,
            _ if word.starts_with('-') => {}
            _ => return stem(word),
        }
        at += 1;
    }
    None
}

fn is_python_file(word: &str) -> bool {
    word.len() > 3 && word.ends_with(".py")
}

fn first_python_file(words: &[&str]) -> Option<String> {
    words.iter().find(|word| is_python_file(word)).and_then(|word| stem(word))
}

/// The file's name without its ending.
fn stem(path: &str) -> Option<String> {
    Some(Path::new(path).file_stem()?.to_str()?.to_owned())
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
