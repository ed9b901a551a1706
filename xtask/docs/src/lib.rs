//! `cargo xtask docs`: the folder `docs` as a book, with the pages that are generated.
//!
//! | page | is made of |
//! |---|---|
//! | `commands.md` | the command lines, by `radrm generate` |
//! | `configuration.md` | the types that read the files, by [`configuration`] |
//! | `profile-file.md`, `report-json.md` | the types that are written, by [`types`] |

mod attributes;
mod configuration;
mod dead;
mod sources;
mod types;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use xtask::files::files_below;
use xtask::shell;

/// The program that builds the book, as `cargo install` gets it.
const MDBOOK: &str = "0.5.4";

/// Pages of the book that no file in `docs` holds.
pub const GENERATED: [&str; 4] =
    ["commands.md", "configuration.md", types::PAGES[0].name, types::PAGES[1].name];

/// Build the book in target/book from docs, the command lines and the types of the configuration.
#[derive(clap::Parser)]
#[command(name = "cargo xtask docs")]
pub struct Flags {
    /// Write the pages of the book as Markdown to target/book-source, and build no HTML.
    #[arg(long)]
    source_only: bool,
}

/// Writes the book to `target/book`.
///
/// # Errors
/// radrm or mdbook cannot be built, a page cannot be written, or a link of the book is dead.
pub fn run(flags: &Flags) -> Result<()> {
    let target = shell::target_dir();
    let source = target.join("book-source");
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    for (name, path) in files_below(&shell::root().join("docs"))? {
        write(&source.join("src").join(name), &fs::read(path)?)?;
    }
    shell::run(shell::cargo().args(["build", "--quiet", "-p", "radrm"]))?;
    let generated = source.join("generated");
    shell::run(shell::command(target.join("debug/radrm")).arg("generate").arg(&generated))?;
    for (name, content) in pages(&generated)? {
        write(&source.join("src").join(name), &content)?;
    }
    write(&source.join("book.toml"), include_bytes!("../../data/book.toml"))?;
    if !flags.source_only {
        let book = target.join("book");
        shell::run(shell::command(mdbook()?).arg("build").arg(&source).arg("--dest-dir").arg(&book))?;
        let dead = dead::links(&book)?;
        ensure!(dead.is_empty(), "links of the book that lead nowhere:\n{}", dead.join("\n"));
        eprintln!("xtask: the book is {}", book.join("index.html").display());
    }
    Ok(())
}

/// The pages of [`GENERATED`] with their content. `generated` is what `radrm generate` has written.
///
/// # Errors
/// A source or the page of commands cannot be read.
pub fn pages(generated: &Path) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let root = shell::root();
    let [commands, configuration, ..] = GENERATED;
    let file = generated.join(commands);
    let mut pages = vec![
        (commands, fs::read(&file).with_context(|| file.display().to_string())?),
        (configuration, configuration::page(&root)?.into_bytes()),
    ];
    for page in types::PAGES {
        pages.push((page.name, page.text(&root)?.into_bytes()));
    }
    Ok(pages)
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    fs::create_dir_all(path.parent().context("a file has a folder")?)?;
    fs::write(path, content).with_context(|| path.display().to_string())
}

/// The program, installed into `target` where it is not there yet.
fn mdbook() -> Result<std::path::PathBuf> {
    let tools = shell::target_dir().join("tools");
    let program = tools.join("bin/mdbook");
    let version = shell::command(&program).arg("--version").output();
    if version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim_end().ends_with(MDBOOK)) {
        return Ok(program);
    }
    let mut install = shell::cargo();
    install.args(["install", "mdbook", "--version", MDBOOK, "--locked", "--no-default-features"]);
    shell::run(install.args(["--features", "search", "--root"]).arg(&tools))?;
    Ok(program)
}
