//! Commands that pages of the documentation show, and what they print.
//!
//! In a `console` block a line that begins with `$ ` is a command, the lines up to the next one are its output: `...` alone
//! on a line stands for any lines, inside a line for any text, and a number for any number. An output that is not shown is
//! not compared. Comments before a block:
//!
//! | comment | means |
//! |---|---|
//! | `file: NAME` | the block is a file, and the text before it names it |
//! | `exit: N` | its last command ends with N instead of 0 |
//! | `node: N` | the same, on a fresh node by `cargo xtask dist --try`, where commands behind `# ` are root's, others a user's |
//! | `skipped: REASON` | it is not run |

use anyhow::{Context, Result, bail, ensure};

/// A fenced block of a page.
pub struct Block {
    /// Language behind the fence.
    pub language: String,
    /// Comment before it, as key and value.
    pub comment: Option<(String, String)>,
    /// The paragraph before it, as a reader sees it.
    pub before: String,
    /// Its lines.
    pub lines: Vec<String>,
}

impl Block {
    /// Name of the file that the block is.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        self.comment.as_ref().filter(|(key, _)| key == "file").map(|(_, name)| name.as_str())
    }

    /// The file's content.
    #[must_use]
    pub fn content(&self) -> String {
        self.lines.join("\n") + "\n"
    }
}

/// Machine on which commands of a page are run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A folder of the user.
    Folder,
    /// A fresh node, with its root.
    Node,
}

/// A command of a page.
pub struct Step {
    /// True for a command of root.
    pub by_root: bool,
    /// The line behind the prompt.
    pub command: String,
    /// Exit code with which it ends.
    pub code: i32,
    /// Lines that it prints, as the page shows them.
    pub output: Vec<String>,
}

impl Step {
    fn wrong(&self, code: &str, printed: &[&str]) -> Option<String> {
        if code != self.code.to_string() {
            return Some(format!("ended with {code} instead of {}", self.code));
        }
        missing(&self.output, printed).map(|line| format!("did not print `{line}`"))
    }
}

/// The fenced blocks of a page.
///
/// # Errors
/// A block does not end.
pub fn blocks(page: &str) -> Result<Vec<Block>> {
    let (mut blocks, mut open, mut comment): (Vec<Block>, Option<Block>, _) = (Vec::new(), None, None);
    let (mut before, mut is_over) = (String::new(), true);
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.lines.push(line.to_owned()),
            (None, Some(language)) => {
                open = Some(Block {
                    language: language.to_owned(),
                    comment: comment.take(),
                    before: std::mem::take(&mut before),
                    lines: Vec::new(),
                });
            }
            (None, None) => {
                let inside = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
                let pair = inside.and_then(|inside| inside.split_once(": "));
                comment = pair.map(|(key, value)| (key.to_owned(), value.to_owned()));
                match (line.trim().is_empty() || line.starts_with("<!--"), is_over) {
                    (true, _) => is_over = true,
                    (false, true) => (before, is_over) = (line.to_owned(), false),
                    (false, false) => before = format!("{before} {line}"),
                }
            }
        }
    }
    ensure!(open.is_none(), "a block does not end");
    Ok(blocks)
}

/// The commands of blocks that are run on this stage.
///
/// # Errors
/// A comment before a block is unknown, or a block begins with output.
pub fn steps(blocks: &[Block], stage: Stage) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for block in blocks.iter().filter(|block| block.language == "console") {
        let (mut code, mut needed) = (0, Stage::Folder);
        match block.comment.as_ref().map(|(key, value)| (key.as_str(), value)) {
            Some(("skipped", reason)) => {
                eprintln!("skipped: {} ({reason})", block.lines.join("; "));
                continue;
            }
            Some(("exit", value)) => code = value.parse().context("an exit code")?,
            Some(("node", value)) => (code, needed) = (value.parse().context("an exit code")?, Stage::Node),
            Some((key, _)) => bail!("unknown comment before a block: {key}"),
            None => {}
        }
        if needed != stage {
            continue;
        }
        let first = steps.len();
        for line in &block.lines {
            let by_root = stage == Stage::Node && line.starts_with("# ");
            match (line.strip_prefix(if by_root { "# " } else { "$ " }), steps.len() > first) {
                (Some(command), _) => {
                    let command = command.to_owned();
                    steps.push(Step { by_root, command, code: 0, output: Vec::new() });
                }
                (None, true) => steps.last_mut().context("no command")?.output.push(line.clone()),
                (None, false) => bail!("output without a command: {line}"),
            }
        }
        steps.last_mut().context("an empty block")?.code = code;
    }
    Ok(steps)
}

/// A shell script that runs the commands one after another and marks what each of them prints. Those that are not root's
/// are given to the shell behind `user`, a command such as `runuser -u alice -- sh -c`, where one is named.
#[must_use]
pub fn script(steps: &[Step], user: Option<&str>) -> String {
    let mut script = String::from("exec 2>&1\n");
    for (number, step) in steps.iter().enumerate() {
        let command = match user.filter(|_| !step.by_root) {
            Some(user) => format!("{user} '{}'", step.command.replace('\'', r"'\''")),
            None => step.command.clone(),
        };
        script += &format!("printf '\\n@begin {number}\\n'\n{command}\nprintf '\\n@end %d\\n' $?\n");
    }
    script
}

/// Differences between the output of the [`script`] and the page.
#[must_use]
pub fn problems(steps: &[Step], printed: &str) -> Vec<String> {
    let mut outputs = printed.split("\n@begin ").skip(1);
    let problem = |step: &Step| {
        let output = outputs.next().unwrap_or_default();
        let (output, code) = output.rsplit_once("\n@end ").unwrap_or((output, "none"));
        let code = code.lines().next().unwrap_or_default();
        let lines: Vec<&str> = output.lines().skip(1).filter(|line| !line.trim().is_empty()).collect();
        let wrong = step.wrong(code, &lines)?;
        Some(format!("`{}` {wrong}:\n{}\n", step.command, lines.join("\n")))
    };
    steps.iter().filter_map(problem).collect()
}

/// Numbers become one digit, runs of spaces one space.
fn plain(line: &str) -> String {
    let mut plain = String::new();
    let mut characters = line.trim().chars();
    while let Some(character) = characters.next() {
        if character.is_ascii_digit() {
            // Up to the end of a number such as 1,234.5; what follows `7,` is none.
            let rest = characters.as_str();
            let end = rest.find(|next: char| !next.is_ascii_digit() && !matches!(next, '.' | ','));
            let number = rest[..end.unwrap_or(rest.len())].trim_end_matches(['.', ',']);
            characters = rest[number.len()..].chars();
            plain.push('0');
        } else if !(character.is_whitespace() && plain.ends_with(' ')) {
            plain.push(character);
        }
    }
    plain
}

/// Returns true if a line is as it is shown, with `...` for any text.
fn alike(shown: &str, printed: &str) -> bool {
    let (shown, printed) = (plain(shown), plain(printed));
    let mut parts = shown.split("...").map(str::trim);
    let Some(mut rest) = printed.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = shown.rsplit_once("...").map(|(_, last)| last.trim()) else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || last.is_empty() || printed.ends_with(last)
}

/// The first line that is shown and was not printed where it should be.
fn missing<'s>(shown: &'s [String], printed: &[&str]) -> Option<&'s str> {
    let (mut at, mut skips) = (0, false);
    for line in shown.iter().filter(|line| !line.trim().is_empty()) {
        if line == "..." {
            skips = true;
            continue;
        }
        let rest = &printed[at..];
        let found = if skips { rest.iter().position(|printed| alike(line, printed)) } else { Some(0) };
        match found.filter(|found| rest.get(*found).is_some_and(|printed| alike(line, printed))) {
            Some(found) => at += found + 1,
            None => return Some(line),
        }
        skips = false;
    }
    (!skips && !shown.is_empty() && at < printed.len()).then_some("(the end)")
}

/// Files whose names a reader does not learn before their blocks.
#[must_use]
pub fn unnamed(blocks: &[Block]) -> Vec<&str> {
    let files = blocks.iter().filter_map(|block| Some((block.file()?, &block.before)));
    files.filter(|(name, before)| !before.contains(&format!("`{name}`"))).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_name_only_a_comment_has_is_found() {
        let page = |before: &str| format!("# A\n{before}\n\n<!-- file: a.py -->\n```python\nimport a\n```\n");
        for (before, expected) in [
            ("Save this as\n`a.py`:", &[][..]),
            ("This is a program:", &["a.py"]),
            ("`a.py` is below.\n\nOr not:", &["a.py"]),
        ] {
            assert_eq!(unnamed(&blocks(&page(before)).unwrap()), expected, "{before}");
        }
    }

    #[test]
    fn what_a_page_shows_and_a_command_does_not_print_is_found() {
        let shown = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        for (page, printed, expected) in [
            ("a 1.5 GiB", "a 17 GiB", None),
            ("a ... c", "a b c", None),
            ("job ..., GPU 0", "job 1,234, GPU 1", None),
            ("a ... c", "a b d", Some("a ... c")),
            ("a", "b", Some("a")),
            ("...\nc\n...", "a\nb\nc\nd", None),
            ("...\nc", "a\nb\nc\nd", Some("(the end)")),
            ("a\nc", "a\nb\nc", Some("c")),
            ("...\nx\n...", "a\nb", Some("x")),
            ("", "anything", None),
        ] {
            let lines: Vec<&str> = printed.lines().collect();
            assert_eq!(missing(&shown(page), &lines), expected, "{page}");
        }
    }

    #[test]
    fn a_command_that_ends_or_prints_otherwise_is_found() {
        let page = "```console\n$ echo 'it is'\nit is\n$ exit 3\n```\n";
        let steps = steps(&blocks(page).unwrap(), Stage::Folder).unwrap();
        for (user, expected) in [(None, 1), (Some("sh -c"), 1)] {
            let done = std::process::Command::new("sh").args(["-c", &script(&steps, user)]).output().unwrap();
            let said = problems(&steps, &String::from_utf8(done.stdout).unwrap());
            assert_eq!(said.len(), expected, "{said:?}");
            assert!(said[0].starts_with("`exit 3` ended with "), "{said:?}");
        }
        assert_eq!(problems(&steps, "\n@begin 0\nother\n\n@end 0\n").len(), 2);
    }

    #[test]
    fn a_node_has_commands_of_root_and_of_users_and_a_folder_has_its_own() {
        let page =
            "```console\n$ here\n# a line\n```\n<!-- node: 0 -->\n```console\n# first\nsaid\n$ second\n```\n";
        let found = |stage| {
            let steps = steps(&blocks(page).unwrap(), stage).unwrap();
            steps.into_iter().map(|step| (step.by_root, step.command, step.output)).collect::<Vec<_>>()
        };
        assert_eq!(found(Stage::Folder), [(false, "here".to_owned(), vec!["# a line".to_owned()])]);
        let node =
            [(true, "first".to_owned(), vec!["said".to_owned()]), (false, "second".to_owned(), vec![])];
        assert_eq!(found(Stage::Node), node);
    }
}
