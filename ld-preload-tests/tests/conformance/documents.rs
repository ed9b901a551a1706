//! README and book: every command that a page shows is run, and prints what the page shows, or the page says why not.
//!
//! A page is one shell session in a folder of its own. In a `console` block a line that begins with `$ ` is a command, the
//! lines up to the next one are its output: `...` alone on a line stands for any lines, inside a line for any text, and a
//! number for any number. An output that is not shown is not compared. Comments before a block:
//!
//! | comment | means |
//! |---|---|
//! | `file: NAME` | the block is a file of the folder, and the text before it names it; those of the tutorial are in every folder |
//! | `exit: N` | its last command ends with N instead of 0 |
//! | `skipped: REASON` | it is not run |

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use radrm_preload_tests::{artifacts, child};

/// Seconds for a page: many times what it takes.
const PATIENCE: u64 = 300;

/// A fenced block of a page.
struct Block {
    /// Language behind the fence.
    language: String,
    /// Comment before it, as key and value.
    comment: Option<(String, String)>,
    /// The paragraph before it, as a reader sees it.
    before: String,
    lines: Vec<String>,
}

/// A command of a page.
struct Step {
    command: String,
    code: i32,
    output: Vec<String>,
}

fn blocks(page: &str) -> Vec<Block> {
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
    assert!(open.is_none(), "a block does not end");
    blocks
}

fn steps(blocks: &[Block]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in blocks.iter().filter(|block| block.language == "console") {
        let mut code = 0;
        match block.comment.as_ref().map(|(key, value)| (key.as_str(), value)) {
            Some(("skipped", reason)) => {
                eprintln!("skipped: {} ({reason})", block.lines.join("; "));
                continue;
            }
            Some(("exit", value)) => code = value.parse().expect("an exit code"),
            other => assert!(other.is_none(), "{other:?}"),
        }
        let first = steps.len();
        for line in &block.lines {
            match (line.strip_prefix("$ "), steps.len() > first) {
                (Some(command), _) => {
                    steps.push(Step { command: command.to_owned(), code: 0, output: Vec::new() });
                }
                (None, true) => steps.last_mut().expect("a command").output.push(line.clone()),
                (None, false) => panic!("output without a command: {line}"),
            }
        }
        steps.last_mut().expect("a command").code = code;
    }
    steps
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
fn unnamed(blocks: &[Block]) -> Vec<&str> {
    let files = blocks.iter().filter_map(|block| Some((block.comment.as_ref()?, &block.before)));
    let files = files.filter(|((key, name), before)| key == "file" && !before.contains(&format!("`{name}`")));
    files.map(|((_, name), _)| name.as_str()).collect()
}

/// Runs a page's commands; what is not as the page shows it.
fn problems(page: &Path, shared: &[Block]) -> String {
    let own = blocks(&fs::read_to_string(page).expect("page"));
    let steps = steps(&own);
    if steps.is_empty() {
        return String::new();
    }
    let place = tempfile::tempdir().expect("folder");
    for block in shared.iter().chain(&own) {
        if let Some((key, name)) = &block.comment
            && key == "file"
        {
            fs::write(place.path().join(name), block.lines.join("\n") + "\n").expect("file");
        }
    }
    let mut script = String::from("exec 2>&1\n");
    for (number, step) in steps.iter().enumerate() {
        let _ =
            writeln!(script, "printf '\\n@begin {number}\\n'\n{}\nprintf '\\n@end %d\\n' $?", step.command);
    }
    let home = tempfile::tempdir().expect("home");
    let bin = home.path().join("bin");
    fs::create_dir(&bin).expect("bin");
    symlink(env!("CARGO_BIN_EXE_radrm-mps-standin"), bin.join("nvidia-cuda-mps-control")).expect("stand-in");
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(script).current_dir(place.path()).env_clear().env("HOME", home.path());
    shell.env("XDG_RUNTIME_DIR", home.path()).env("XDG_DATA_HOME", home.path().join("data"));
    shell.env("PYTHONPATH", artifacts::workspace().join("contrib/python"));
    shell.env("PATH", format!("{}:{}:/usr/bin:/bin", artifacts::directory().display(), bin.display()));
    let printed = child::run(shell, PATIENCE).ok().stdout;

    let mut problems = String::new();
    for name in unnamed(&own) {
        let _ =
            writeln!(problems, "{}: the paragraph before the file does not name `{name}`\n", page.display());
    }
    let mut outputs = printed.split("\n@begin ").skip(1);
    for step in &steps {
        let output = outputs.next().unwrap_or_default();
        let (output, code) = output.rsplit_once("\n@end ").unwrap_or((output, "none"));
        let code = code.lines().next().unwrap_or_default();
        let lines: Vec<&str> = output.lines().skip(1).filter(|line| !line.trim().is_empty()).collect();
        let wrong = if code != step.code.to_string() {
            Some(format!("ended with {code} instead of {}", step.code))
        } else {
            missing(&step.output, &lines).map(|line| format!("did not print `{line}`"))
        };
        if let Some(wrong) = wrong {
            let _ =
                writeln!(problems, "{}: `{}` {wrong}:\n{}\n", page.display(), step.command, lines.join("\n"));
        }
    }
    problems
}

#[test]
fn commands_of_readme_and_book_print_what_they_show() {
    for file in [
        "libradrm.so",
        "libradrm_emulated_cuda.so",
        "libradrm_emulated_nvml.so",
        "libradrm_share.so",
        "radrm",
        "radrm-run",
    ] {
        artifacts::file(file);
    }
    let docs = artifacts::workspace().join("docs");
    let tutorial = docs.join("tutorial.md");
    let shared = blocks(&fs::read_to_string(&tutorial).expect("tutorial"));
    let below = |folder: &Path| fs::read_dir(folder).expect("pages").flatten().map(|entry| entry.path());
    let files = below(&docs).chain(below(&docs.join("how-to")));
    let mut pages: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.push(artifacts::workspace().join("README.md"));
    assert!(pages.len() >= 20 && pages.contains(&tutorial), "{pages:?}");
    let shared = &shared;
    let problems: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> = pages.iter().map(|page| scope.spawn(|| problems(page, shared))).collect();
        running.into_iter().map(|page| page.join().expect("page")).collect()
    });
    assert!(problems.iter().all(String::is_empty), "{}", problems.concat());
}

/// Variables that the sources of a folder name in string literals, tests left out.
fn variables(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("sources").flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("tests") {
            variables(&path, found);
        }
        if path.extension().is_none_or(|extension| extension != "rs" && extension != "py") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("source");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for literal in code.split(['"', '\'']).filter(|part| part.starts_with("RADRM_")) {
            let end = literal.find(|letter: char| !letter.is_ascii_uppercase() && letter != '_');
            let name = &literal[..end.unwrap_or(literal.len())];
            // The prefix alone is none.
            if name != "RADRM_" {
                found.insert(name.to_owned());
            }
        }
    }
}

#[test]
fn each_variable_of_the_programs_is_in_the_reference() {
    let workspace = artifacts::workspace();
    let docs = ["environment.md", "daemon.md"].map(|page| workspace.join("docs").join(page));
    let page = docs.map(|path| fs::read_to_string(path).expect("page")).concat();
    let mut found = BTreeSet::new();
    for folder in [
        "base/os",
        "base/text",
        "cluster/slurm",
        "collector",
        "daemon",
        "emulator/driver",
        "emulator/facade",
        "emulator/machine",
        "emulator/nvml",
        "emulator/toolkit",
        "launcher",
        "limits",
        "protocol",
        "radrm",
        "shim",
        "telemetry",
    ] {
        variables(&workspace.join(folder).join("src"), &mut found);
    }
    assert!(found.len() >= 25 && found.contains("RADRM_SEGMENT"), "{found:?}");
    let missing: Vec<_> = found.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in docs/environment.md: {missing:?}");
}

#[test]
fn a_file_whose_name_only_a_comment_has_is_found() {
    let page = |before: &str| format!("# A\n{before}\n\n<!-- file: a.py -->\n```python\nimport a\n```\n");
    for (before, expected) in [
        ("Save this as\n`a.py`:", &[][..]),
        ("This is a program:", &["a.py"]),
        ("`a.py` is below.\n\nOr not:", &["a.py"]),
    ] {
        assert_eq!(unnamed(&blocks(&page(before))), expected, "{before}");
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
