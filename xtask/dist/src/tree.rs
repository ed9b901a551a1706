//! Files to install: one list, from which every package takes what it has room for.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xtask::{files::files_below, shell};

use super::links;

/// Role of a file. Each package gives it a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A program.
    Program,
    /// A library that a program loads or preloads, beside the others.
    Library,
    /// A source of the Python module; the name is a path below the folder that Python searches.
    Python,
    /// A script that sshd, cron or PAM starts at a login.
    Login,
    /// A systemd unit.
    Unit,
    /// A file of sysusers.d.
    Sysusers,
    /// A file of tmpfiles.d.
    Tmpfiles,
    /// Files that Slurm's administrator copies or names: the script for jobs, and lines of configuration.
    Slurm,
    /// A dashboard that Grafana imports.
    Dashboard,
    /// A configuration file of the administrator.
    Config,
    /// Documentation and licences.
    Doc,
    /// A manual page or completions of a shell; the name is a path below `share`.
    Share,
}

/// A file to install.
pub struct Entry {
    /// Role of the file.
    pub part: Part,
    /// Its name.
    pub name: String,
    /// Its content.
    pub content: Vec<u8>,
}

impl Entry {
    /// Permissions of the installed file.
    pub fn mode(&self) -> u32 {
        if matches!(self.part, Part::Program | Part::Login) { 0o755 } else { 0o644 }
    }

    /// Path below a prefix such as `/opt/radrm`. The programs look for the libraries in `../lib/radrm`.
    pub fn below_prefix(&self) -> String {
        let folder = match self.part {
            Part::Program => "bin",
            Part::Library | Part::Login => "lib/radrm",
            Part::Python => "lib/radrm/python",
            Part::Unit => "share/radrm/systemd",
            Part::Sysusers => "share/radrm/sysusers.d",
            Part::Tmpfiles => "share/radrm/tmpfiles.d",
            Part::Slurm => "share/radrm/slurm",
            Part::Dashboard => "share/radrm/grafana",
            Part::Config => "share/radrm/config",
            Part::Doc => "share/doc/radrm",
            Part::Share => "share",
        };
        format!("{folder}/{}", self.name)
    }

    /// Path below `/` in a package of the system.
    pub fn on_node(&self) -> String {
        let folder = match self.part {
            Part::Program => "usr/bin",
            Part::Library | Part::Login => "usr/lib/radrm",
            Part::Python => "usr/lib/radrm/python",
            Part::Unit => "usr/lib/systemd/system",
            Part::Sysusers => "usr/lib/sysusers.d",
            Part::Tmpfiles => "usr/lib/tmpfiles.d",
            Part::Slurm => "usr/share/radrm/slurm",
            Part::Dashboard => "usr/share/radrm/grafana",
            Part::Config => "etc/radrm",
            Part::Doc => "usr/share/doc/radrm",
            Part::Share => "usr/share",
        };
        format!("{folder}/{}", self.name)
    }
}

/// Programs, by name.
pub const PROGRAMS: [&str; 3] = ["radrm", "radrm-run", "radrmd"];

/// Libraries and their packages.
pub const LIBRARIES: [(&str, &str); 6] = [
    ("libradrm.so", "radrm-shim"),
    ("libradrm_emulated_cuda.so", "radrm-emulator-driver"),
    ("libradrm_emulated_nvml.so", "radrm-emulator-nvml"),
    ("libradrm_emulated_toolkit.so", "radrm-emulator-toolkit"),
    ("libradrm_share.so", "radrm-share"),
    ("libradrm_spank.so", "radrm-spank"),
];

/// Folders of the workspace whose files are installed as they are.
const SOURCES: [(Part, &str); 8] = [
    (Part::Login, "contrib/login"),
    (Part::Unit, "contrib/systemd"),
    (Part::Sysusers, "contrib/sysusers.d"),
    (Part::Tmpfiles, "contrib/tmpfiles.d"),
    (Part::Slurm, "contrib/slurm"),
    (Part::Dashboard, "contrib/grafana"),
    (Part::Config, "contrib/config"),
    (Part::Doc, "docs"),
];

/// The Python module: its folder, and the folder above it.
const MODULE: (&str, &str) = ("radrm", "contrib/python");

/// Endings of what belongs to a Python module: neither what Python compiled here nor notes beside it.
const PYTHON: [&str; 3] = [".py", ".pyi", "py.typed"];

/// Documents at the root of the workspace.
const DOCUMENTS: [&str; 3] = [README, "LICENSE-APACHE", "LICENSE-MIT"];

/// The document that links to others.
pub const README: &str = "README.md";

/// All entries, with the programs and libraries of a folder.
///
/// # Errors
/// A file is missing.
pub fn entries(built: &Path) -> Result<Vec<Entry>> {
    let root = shell::root();
    let mut all = Vec::new();
    let mut add = |part, name: &str, path: &Path| -> Result<()> {
        let content = fs::read(path).with_context(|| path.display().to_string())?;
        all.push(Entry { part, name: name.to_owned(), content });
        Ok(())
    };
    for name in PROGRAMS {
        add(Part::Program, name, &built.join(name))?;
    }
    for (name, _) in LIBRARIES {
        add(Part::Library, name, &built.join(name))?;
    }
    for name in DOCUMENTS {
        add(Part::Doc, name, &root.join(name))?;
    }
    for (part, folder) in SOURCES {
        for (name, path) in files_below(&root.join(folder))? {
            add(part, &name, &path)?;
        }
    }
    for (name, path) in python(&root)? {
        add(Part::Python, &name, &path)?;
    }
    // Of the command lines of the very programs that are packed.
    let generated = built.join("generated");
    shell::run(shell::command(built.join("radrm")).arg("generate").arg(&generated))?;
    for (name, path) in files_below(&generated.join("share"))? {
        add(Part::Share, &name, &path)?;
    }
    // Pages link to those that are generated.
    for (name, content) in xtask_docs::pages(&generated)? {
        all.push(Entry { part: Part::Doc, name: name.to_owned(), content });
    }
    let documents =
        all.iter().filter(|entry| entry.part == Part::Doc).map(|entry| entry.name.as_str()).collect();
    let readme = links::beside(&fs::read_to_string(root.join(README))?, &documents);
    for entry in all.iter_mut().filter(|entry| entry.part == Part::Doc && entry.name == README) {
        entry.content = readme.clone().into_bytes();
    }
    Ok(all)
}

/// Sources of the Python module below the workspace's root; none where the module is not there.
///
/// # Errors
/// A folder cannot be read.
pub fn python(root: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let (module, above) = MODULE;
    let folder = root.join(above).join(module);
    if !folder.is_dir() {
        return Ok(BTreeMap::new());
    }
    let files = files_below(&folder)?.into_iter();
    let sources = files.filter(|(name, _)| PYTHON.iter().any(|ending| name.ends_with(ending)));
    Ok(sources.map(|(name, path)| (format!("{module}/{name}"), path)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_the_python_module_are_found_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        assert!(python(root.path()).unwrap().is_empty(), "no module, no files");
        for name in
            ["__init__.py", "py.typed", "jupyter/magic.py", "__pycache__/magic.cpython-313.pyc", "notes.md"]
        {
            let path = root.path().join("contrib/python/radrm").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        let found: Vec<_> = python(root.path()).unwrap().into_keys().collect();
        assert_eq!(found, ["radrm/__init__.py", "radrm/jupyter/magic.py", "radrm/py.typed"]);
        let entry = Entry { part: Part::Python, name: found[1].clone(), content: Vec::new() };
        assert_eq!(entry.below_prefix(), "lib/radrm/python/radrm/jupyter/magic.py");
        assert_eq!(entry.on_node(), "usr/lib/radrm/python/radrm/jupyter/magic.py");
    }
}
