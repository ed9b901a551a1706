//! What is installed: one list, from which every package takes what it has room for.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::shell;

/// What a file is. Each package says where that goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A program.
    Program,
    /// A library that a program loads or preloads, beside the others.
    Library,
    /// A systemd unit.
    Unit,
    /// A file of sysusers.d.
    Sysusers,
    /// A file of tmpfiles.d.
    Tmpfiles,
    /// A configuration file of the administrator.
    Config,
    /// Documentation and licences.
    Doc,
}

/// A file to install.
pub struct Entry {
    /// What it is.
    pub part: Part,
    /// Its name.
    pub name: String,
    /// Its content.
    pub content: Vec<u8>,
}

impl Entry {
    /// Permissions of the installed file.
    pub fn mode(&self) -> u32 {
        if self.part == Part::Program { 0o755 } else { 0o644 }
    }
}

/// Programs, by name.
pub const PROGRAMS: [&str; 3] = ["radrm", "radrm-run", "radrmd"];

/// Libraries and their packages.
pub const LIBRARIES: [(&str, &str); 4] = [
    ("libradrm.so", "radrm-shim"),
    ("libradrm_emulated_cuda.so", "radrm-emulator-driver"),
    ("libradrm_emulated_nvml.so", "radrm-emulator-nvml"),
    ("libradrm_emulated_toolkit.so", "radrm-emulator-toolkit"),
];

/// Folders of the workspace whose files are installed as they are.
const SOURCES: [(Part, &str); 5] = [
    (Part::Unit, "contrib/systemd"),
    (Part::Sysusers, "contrib/sysusers.d"),
    (Part::Tmpfiles, "contrib/tmpfiles.d"),
    (Part::Config, "contrib/config"),
    (Part::Doc, "docs"),
];

/// Documents at the root of the workspace.
const DOCUMENTS: [&str; 3] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];

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
        let mut files: Vec<_> = fs::read_dir(root.join(folder))
            .with_context(|| folder.to_owned())?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        files.sort();
        for path in files.iter().filter(|path| path.is_file()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            add(part, &name, path)?;
        }
    }
    Ok(all)
}
