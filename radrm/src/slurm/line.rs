//! The command line of `sbatch`: its options, ours among them, the script and the script's arguments.
//!
//! An option of `sbatch` takes the next word unless it is one of those below, as in `slurm_opt.c` of Slurm 22.05 to 26.05.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Long options that take no word, or only one behind an equals sign.
const ALONE: [&str; 27] = [
    "contiguous",
    "exclusive",
    "get-user-env",
    "help",
    "hold",
    "ignore-pbs",
    "nice",
    "no-kill",
    "no-requeue",
    "overcommit",
    "oversubscribe",
    "parsable",
    "propagate",
    "quiet",
    "reboot",
    "requeue",
    "resv-ports",
    "share",
    "spread-job",
    "stepmgr",
    "test-only",
    "usage",
    "use-min-nodes",
    "verbose",
    "version",
    "wait",
    "consolidate-segments",
];

/// Letters that take no word.
const LETTERS_ALONE: &[u8] = b"hHkOQsvVW";

/// Letters and the long options that they stand for, those that are looked up here.
const LETTERS: [(u8, &str); 6] = [
    (b'D', "chdir"),
    (b'G', "gpus"),
    (b'p', "partition"),
    (b'Q', "quiet"),
    (b'h', "help"),
    (b'V', "version"),
];

/// An option as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Given {
    /// Its long name, or the letter of one that is not looked up.
    pub(super) name: String,
    /// Value that it takes.
    pub(super) value: Option<OsString>,
    /// The words that it stands in.
    pub(super) words: Vec<OsString>,
}

/// A command line taken apart.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Line {
    /// Options in order.
    pub(super) options: Vec<Given>,
    /// The script; `None`: standard input, or `--wrap`.
    pub(super) script: Option<OsString>,
    /// Arguments of the script.
    pub(super) arguments: Vec<OsString>,
}

impl Line {
    /// Takes words apart. `own`: our options, and whether they take the next word.
    pub(super) fn parse(words: impl IntoIterator<Item = OsString>, own: &[(String, bool)]) -> Self {
        let mut words = words.into_iter();
        let mut line = Self::default();
        while let Some(word) = words.next() {
            let bytes = word.as_bytes();
            if bytes == b"--" {
                line.script = words.next();
            } else if bytes.len() < 2 || bytes[0] != b'-' {
                line.script = Some(word);
            } else {
                line.options.push(option(word, &mut words, own));
                continue;
            }
            line.arguments = words.by_ref().collect();
        }
        line
    }

    /// The options in the `#SBATCH` lines of a script, as far as `sbatch` reads it.
    pub(super) fn of_script(content: &[u8], own: &[(String, bool)]) -> Self {
        let text = String::from_utf8_lossy(content);
        let is_comment = |line: &&str| line.trim().is_empty() || line.starts_with('#');
        let lines = text.lines().take_while(is_comment).filter_map(|line| line.strip_prefix("#SBATCH"));
        let words = lines.flat_map(words).map(OsString::from);
        Self { script: None, arguments: Vec::new(), ..Self::parse(words, own) }
    }

    /// Value that an option was given, the last time that it was.
    pub(super) fn value(&self, name: &str) -> Option<&OsStr> {
        self.options.iter().rev().find(|given| given.name == name)?.value.as_deref()
    }

    /// Returns true if an option was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|given| given.name == name)
    }
}

/// An option and what it takes of the words behind it.
fn option(word: OsString, words: &mut impl Iterator<Item = OsString>, own: &[(String, bool)]) -> Given {
    let bytes = word.as_bytes();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (name, attached, takes) = match bytes.strip_prefix(b"--") {
        Some(long) => {
            let at = long.iter().position(|byte| *byte == b'=');
            let (name, value) = long.split_at(at.unwrap_or(long.len()));
            let name = text(name);
            let takes = match own.iter().find(|(own, _)| *own == name) {
                Some((_, takes)) => *takes,
                None => !ALONE.contains(&name.as_str()),
            };
            (name, at.map(|_| OsString::from_vec(value[1..].to_vec())), takes)
        }
        // Letters without words may stand together; the last one decides.
        None => {
            let alone = bytes[1..].iter().take_while(|letter| LETTERS_ALONE.contains(letter)).count();
            let at = (1 + alone).min(bytes.len() - 1);
            let letter = bytes[at];
            let takes = !LETTERS_ALONE.contains(&letter);
            let rest = &bytes[at + 1..];
            let long = LETTERS.iter().find(|(known, _)| *known == letter);
            let name = long.map_or_else(|| text(&[letter]), |(_, name)| (*name).to_owned());
            (name, (takes && !rest.is_empty()).then(|| OsString::from_vec(rest.to_vec())), takes)
        }
    };
    let mut given = Given { name, value: attached, words: vec![word] };
    if takes
        && given.value.is_none()
        && let Some(next) = words.next()
    {
        given.value = Some(next.clone());
        given.words.push(next);
    }
    given
}

/// The words of an `#SBATCH` line: quotes keep blanks, and a `#` begins a comment.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut is_word) = (String::new(), None, false);
    for character in line.chars() {
        match (character, quote) {
            ('"' | '\'', None) => (quote, is_word) = (Some(character), true),
            (_, Some(open)) if character == open => quote = None,
            ('#', None) if !is_word => break,
            (_, None) if character.is_whitespace() => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            _ => {
                word.push(character);
                is_word = true;
            }
        }
    }
    words.extend(is_word.then_some(word));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        let own = [("dry-run".to_owned(), false), ("gpu-mem".to_owned(), true)];
        Line::parse(text.split_whitespace().map(OsString::from), &own)
    }

    #[test]
    fn the_script_is_the_first_word_that_no_option_takes() {
        for (text, script, arguments) in [
            ("train.sh -p x", "train.sh", 2),
            ("-p main train.sh", "train.sh", 0),
            ("-pmain --time 5 --requeue -QW train.sh a", "train.sh", 1),
            ("--exclusive -N 2 --nice train.sh", "train.sh", 0),
            ("--dry-run --gpu-mem 1GiB -J name train.sh --dry-run", "train.sh", 1),
            ("--parsable -- train.sh", "train.sh", 0),
            ("-Wp main train.sh", "train.sh", 0),
        ] {
            let found = line(text);
            assert_eq!(found.script.as_deref(), Some(OsStr::new(script)), "{text}: {found:?}");
            assert_eq!(found.arguments.len(), arguments, "{text}");
        }
        assert_eq!(line("--wrap x -p main").script, None);
    }

    #[test]
    fn options_are_found_in_all_spellings() {
        for text in ["-p main s", "-pmain s", "--partition=main s", "--partition main s", "-Hpmain s"] {
            assert_eq!(line(text).value("partition"), Some(OsStr::new("main")), "{text}");
        }
        assert!(line("-vQ s").has("quiet") && !line("-v s").has("quiet"));
        assert_eq!(line("-G 1 --gpus=2 s").value("gpus"), Some(OsStr::new("2")), "the last one counts");
    }

    #[test]
    fn lines_of_the_script_are_options_up_to_the_first_command() {
        let text = b"#!/bin/sh\n# a remark\n#SBATCH --gres=gpu:2 -J \"two words\" # not this\n\n#SBATCH -p main\nset -e\n\
                     #SBATCH --gpus=4\n";
        let found = Line::of_script(text, &[]);
        let names: Vec<_> = found.options.iter().map(|given| given.name.as_str()).collect();
        assert_eq!(names, ["gres", "J", "partition"]);
        assert_eq!(found.options[1].value.as_deref(), Some(OsStr::new("two words")));
    }
}
