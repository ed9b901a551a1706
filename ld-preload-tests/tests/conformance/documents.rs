//! README and book: every command that a page shows is run, and prints what the page shows, or the page says why not.
//!
//! A page is one shell session in a folder of its own, with the files of the tutorial. `xtask::pages` reads it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use radrm_preload_tests::{artifacts, child};
use xtask::pages::{self, Block, Stage, blocks, steps, unnamed};

/// Seconds for a page: many times what it takes.
const PATIENCE: u64 = 300;

/// Runs a page's commands; what is not as the page shows it.
fn problems(page: &Path, shared: &[Block]) -> String {
    let own = blocks(&fs::read_to_string(page).expect("page")).expect("blocks");
    let steps = steps(&own, Stage::Folder).expect("commands");
    if steps.is_empty() {
        return String::new();
    }
    let place = tempfile::tempdir().expect("folder");
    for block in shared.iter().chain(&own) {
        if let Some(name) = block.file() {
            fs::write(place.path().join(name), block.content()).expect("file");
        }
    }
    let home = tempfile::tempdir().expect("home");
    let bin = home.path().join("bin");
    fs::create_dir(&bin).expect("bin");
    symlink(env!("CARGO_BIN_EXE_radrm-mps-standin"), bin.join("nvidia-cuda-mps-control")).expect("stand-in");
    let mut shell = Command::new("bash");
    shell
        .arg("-c")
        .arg(pages::script(&steps, None))
        .current_dir(place.path())
        .env_clear()
        .env("HOME", home.path());
    shell.env("XDG_RUNTIME_DIR", home.path()).env("XDG_DATA_HOME", home.path().join("data"));
    shell.env("PYTHONPATH", artifacts::workspace().join("contrib/python"));
    shell.env("PATH", format!("{}:{}:/usr/bin:/bin", artifacts::directory().display(), bin.display()));
    let printed = child::run(shell, PATIENCE).ok().stdout;

    let mut problems = String::new();
    for name in unnamed(&own) {
        let _ =
            writeln!(problems, "{}: the paragraph before the file does not name `{name}`\n", page.display());
    }
    for wrong in pages::problems(&steps, &printed) {
        let _ = writeln!(problems, "{}: {wrong}", page.display());
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
        "radrm-policy-template",
    ] {
        artifacts::file(file);
    }
    let docs = artifacts::workspace().join("docs");
    let tutorial = docs.join("tutorial.md");
    let shared = blocks(&fs::read_to_string(&tutorial).expect("tutorial")).expect("blocks");
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

#[test]
fn the_policy_in_rust_of_the_book_is_the_template_that_is_compiled() {
    let workspace = artifacts::workspace();
    let page = fs::read_to_string(workspace.join("docs/how-to/write-a-policy.md")).expect("page");
    let blocks = blocks(&page).expect("blocks");
    let shown = blocks.iter().find(|block| block.file() == Some("main.rs")).expect("main.rs").content();
    let template =
        fs::read_to_string(workspace.join("contrib/templates/policy/src/main.rs")).expect("template");
    assert_eq!(shown, template);
    assert!(template.lines().count() <= 30, "{} lines", template.lines().count());
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
