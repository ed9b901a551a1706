//! Parser of a command: finds the part that is Python's program.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use radrm_protocol::words;

/// Program that a Python interpreter is given to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Script {
    File(PathBuf),
    /// `-m`.
    Module(String),
    /// `-c`.
    Code(String),
}

/// Shells whose line is looked into.
const SHELLS: [&str; 3] = ["sh", "bash", "dash"];

/// Comes before `env` and the program in a line that `radrm submit` makes of a `.rad` file with one program.
const EXEC: &str = "exec ";

/// Returns true if a command is a Python program, as far as its words show.
pub(crate) fn is_python(command: &[String]) -> bool {
    let decoded: Option<Vec<OsString>> = command.iter().map(|word| words::decode(word)).collect();
    decoded.is_some_and(|command| script(&command).is_some())
}

/// The Python program of a command; `None` if it is another program, or one of several in a shell's script.
pub(super) fn script(command: &[OsString]) -> Option<Script> {
    let first = command.first()?;
    if first.as_bytes().ends_with(b".py") {
        return Some(Script::File(first.into()));
    }
    if let [shell, option, text, ..] = command
        && name(shell).is_some_and(|name| SHELLS.contains(&name))
        && option == "-c"
    {
        return script(&line(text.to_str()?)?);
    }
    if name(first) == Some("env") {
        let is_variable = |word: &&OsString| word.as_bytes().contains(&b'=');
        let rest: Vec<OsString> = command[1..].iter().skip_while(is_variable).cloned().collect();
        return script(&rest);
    }
    let version = name(first)?.strip_prefix("python")?;
    version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.').then_some(())?;
    of_interpreter(&command[1..])
}

fn name(program: &OsStr) -> Option<&str> {
    Path::new(program).file_name()?.to_str()
}

/// The words of the one program in a shell's text, behind a set-up at most; `None` where the text does more, or more than
/// blanks are between the words.
fn line(text: &str) -> Option<Vec<OsString>> {
    let (setup, last) = text.rsplit_once('\n').unwrap_or(("", text));
    let is_setup = setup.starts_with("{ ") && setup.ends_with("\n} || exit");
    if !(setup.is_empty() || is_setup) {
        return None;
    }
    let last = last.strip_prefix(EXEC)?;
    let is_plain =
        !last.contains(['\'', '"', '\\', '`', '$', '*', '?', '(', '#', '~', ';', '&', '|', '<', '>']);
    is_plain.then(|| last.split_whitespace().map(OsString::from).collect())
}

/// Program that an interpreter is given, behind its own options.
fn of_interpreter(words: &[OsString]) -> Option<Script> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_str();
        match text {
            Some("-W" | "-X" | "--check-hash-based-pycs") => drop(words.next()),
            // Standard input, which is empty.
            Some("-") => return None,
            Some(option) if option.starts_with('-') && !option.starts_with("--") => {
                let next =
                    |words: &mut std::slice::Iter<'_, OsString>| words.next()?.to_str().map(str::to_owned);
                match option.chars().last() {
                    Some('m') => return next(&mut words).map(Script::Module),
                    Some('c') => return next(&mut words).map(Script::Code),
                    _ => {}
                }
            }
            Some(option) if option.starts_with("--") => return None,
            _ => return Some(Script::File(word.into())),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Option<Script> {
        script(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn pythons_program_is_found_behind_its_options() {
        let file = |path: &str| Some(Script::File(path.into()));
        for words in [
            &["python3", "t.py", "--lr", "1"][..],
            &["/venv/bin/python3.12", "-u", "-W", "ignore", "t.py"],
            &["/usr/bin/env", "A=1", "python", "t.py"],
            &["/bin/bash", "-c", "exec env python t.py --bs 8"],
            &["/bin/bash", "-c", "{ conda activate e\n} || exit\nexec env A=1 python3 t.py"],
        ] {
            assert_eq!(of(words), file("t.py"), "{words:?}");
        }
        assert_eq!(of(&["./t.py", "x"]), file("./t.py"));
        assert_eq!(of(&["python3", "-um", "a.b", "x"]), Some(Script::Module("a.b".into())));
        assert_eq!(of(&["python3", "-c", "import torch"]), Some(Script::Code("import torch".into())));
    }

    #[test]
    fn other_programs_and_scripts_of_several_are_none() {
        for words in [
            &["./train"][..],
            &[],
            &["python3"],
            &["python3", "-"],
            &["python3", "--version"],
            &["pythonic", "t.py"],
            &["env"],
            &["/bin/bash", "-c", "cd x && python t.py"],
            &["/bin/bash", "-c", "exec env python 'a b.py'"],
            &["/bin/bash", "-c", "exec env ./train"],
            &["/bin/bash", "-c", "rm -r results\nexec env python t.py"],
            &["/bin/bash", "-c", "exec env python t.py > $HOME/out"],
            &["/bin/bash", "script.sh"],
        ] {
            assert_eq!(of(words), None, "{words:?}");
        }
    }
}
