//! Inspection of a Python program's files before any of it runs: whether it uses PyTorch or JAX, and their digest.
//!
//! They are read as the job's user. The modules that a script imports from beside it are read too: often only these
//! name the framework.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::python::{Script, script};

/// PyTorch, JAX, and what brings one of them along.
const FRAMEWORKS: [&str; 22] = [
    "torch",
    "torchvision",
    "torchaudio",
    "timm",
    "transformers",
    "lightning",
    "pytorch_lightning",
    "accelerate",
    "deepspeed",
    "diffusers",
    "peft",
    "trl",
    "sentence_transformers",
    "ultralytics",
    "fastai",
    "monai",
    "torch_geometric",
    "jax",
    "flax",
    "optax",
    "haiku",
    "equinox",
];

/// The most files that are read of a program, and the most bytes of one.
const MAX_FILES: usize = 256;
const MAX_FILE: u64 = 4 << 20;

/// Result of the inspection of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Found {
    /// It uses a framework; the digest of its files.
    Fit(String),
    /// Reason that it is not dry-run, as the end of a sentence.
    Unfit(String),
}

/// Reads the program of a command that runs in `cwd`.
pub(super) fn inspect(command: &[OsString], cwd: &Path) -> Found {
    let unfit = |why: &str| Found::Unfit(why.to_owned());
    let Some(script) = script(command) else { return unfit("it is no Python program") };
    let mut program = Program::default();
    match script {
        Script::File(path) => {
            let path = cwd.join(path);
            let Some(text) = read(&path) else { return unfit("its script cannot be read") };
            let by_itself = command.first().is_some_and(|first| cwd.join(first) == path);
            if by_itself
                && !text.lines().next().is_some_and(|line| line.starts_with("#!") && line.contains("python"))
            {
                return unfit("its script names no Python interpreter");
            }
            program.folder = path.parent().unwrap_or(cwd).to_owned();
            program.add(path, &text);
        }
        Script::Module(name) => {
            cwd.clone_into(&mut program.folder);
            let Some(path) = module(cwd, &name) else { return unfit("its module is not in its directory") };
            program.import(&path);
        }
        Script::Code(text) => {
            cwd.clone_into(&mut program.folder);
            program.add(PathBuf::from("-c"), &text);
        }
    }
    program.follow();
    match program.uses_framework {
        true => Found::Fit(program.digest()),
        false => unfit("neither PyTorch nor JAX is imported by it"),
    }
}

/// The files of a program, as far as they were read.
#[derive(Default)]
struct Program {
    /// Folder of its modules.
    folder: PathBuf,
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// Modules that are imported, and the folder of the file that does.
    imports: Vec<(PathBuf, String)>,
    uses_framework: bool,
}

impl Program {
    fn add(&mut self, path: PathBuf, text: &str) {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        self.files.insert(path, Sha256::digest(text).to_vec());
        for name in imports(text) {
            let top = name.split('.').next().unwrap_or_default();
            self.uses_framework |= FRAMEWORKS.contains(&top);
            self.imports.push((folder.clone(), name));
        }
    }

    fn import(&mut self, path: &Path) {
        if self.files.len() < MAX_FILES
            && !self.files.contains_key(path)
            && let Some(text) = read(path)
        {
            self.add(path.to_owned(), &text);
        }
    }

    /// Reads what is imported and lies beside the program.
    fn follow(&mut self) {
        let mut seen = BTreeSet::new();
        while let Some((folder, name)) = self.imports.pop() {
            // Relative ones begin with dots: one is the file's own folder.
            let bare = name.trim_start_matches('.');
            let above = name.len() - bare.len();
            let folder = match above {
                0 => self.folder.clone(),
                _ => folder.ancestors().nth(above - 1).unwrap_or(&folder).to_owned(),
            };
            if !seen.insert((folder.clone(), bare.to_owned())) {
                continue;
            }
            // Each package on the way is imported too.
            let ends = bare.match_indices('.').map(|(at, _)| at).chain([bare.len()]);
            for end in ends.collect::<Vec<_>>() {
                if let Some(path) = module(&folder, &bare[..end]) {
                    self.import(&path);
                }
            }
        }
    }

    fn digest(&self) -> String {
        let mut all = Sha256::new();
        for (path, digest) in &self.files {
            all.update(path.as_os_str().as_encoded_bytes());
            all.update([0]);
            all.update(digest);
        }
        all.finalize().iter().fold(String::new(), |sum, byte| format!("{sum}{byte:02x}"))
    }
}

/// The file of a module below a folder.
fn module(folder: &Path, name: &str) -> Option<PathBuf> {
    let is_name =
        |part: &str| !part.is_empty() && part.chars().all(|char| char.is_alphanumeric() || char == '_');
    if !name.split('.').all(is_name) {
        return None;
    }
    let base = name.split('.').fold(folder.to_owned(), |path, part| path.join(part));
    let files = [base.with_added_extension("py"), base.join("__main__.py"), base.join("__init__.py")];
    files.into_iter().find(|path| path.is_file())
}

/// The modules that a text imports, as far as its lines say so.
fn imports(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim_start) {
        if let Some(rest) = line.strip_prefix("import ") {
            let names = rest.split(',').filter_map(|part| part.split_whitespace().next());
            found.extend(names.map(|name| name.trim_end_matches(';').to_owned()));
        } else if let Some((package, names)) =
            line.strip_prefix("from ").and_then(|rest| rest.split_once(" import "))
        {
            let package = package.trim();
            found.push(package.to_owned());
            let names = names.trim_matches(['(', ')', ' ']).split(',');
            let names = names.filter_map(|part| part.split_whitespace().next());
            let dot = if package.ends_with('.') { "" } else { "." };
            found.extend(names.map(|name| format!("{package}{dot}{name}")));
        }
    }
    found
}

/// A file's text; `None` for what is not a regular file, or is longer than any program.
fn read(path: &Path) -> Option<String> {
    // A pipe has no end.
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut text).ok()?;
    (text.len() as u64 <= MAX_FILE).then(|| String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn of(dir: &Path, words: &[&str]) -> Found {
        inspect(&words.iter().map(OsString::from).collect::<Vec<_>>(), dir)
    }

    fn why(found: Found) -> String {
        match found {
            Found::Unfit(why) => why,
            Found::Fit(digest) => panic!("fit: {digest}"),
        }
    }

    #[test]
    fn the_framework_may_be_imported_by_a_module_beside_the_script() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        fs::create_dir(dir.path().join("net")).unwrap();
        write("a.py", "import os, sys\nfrom net.model import Model\n");
        write("net/__init__.py", "");
        write("net/model.py", "from . import parts\nfrom .parts import Part as P\n");
        write("net/parts.py", "if True:\n    import torch.nn as nn\n");
        let Found::Fit(first) = of(dir.path(), &["python3", "a.py"]) else { panic!() };
        assert_eq!(of(dir.path(), &["python3", "a.py", "--lr", "3"]), Found::Fit(first.clone()));
        write("net/parts.py", "import torch.nn as nn\n");
        let Found::Fit(second) = of(dir.path(), &["python3", "a.py"]) else { panic!() };
        assert_ne!(first, second, "a module was changed");
        assert!(matches!(of(dir.path(), &["python3", "-m", "net.model"]), Found::Fit(_)));
        assert!(matches!(of(dir.path(), &["python3", "-c", "import jax"]), Found::Fit(_)));
    }

    #[test]
    fn what_is_not_dry_run_has_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("a.py", "import os\n# import torch\n");
        assert!(why(of(dir.path(), &["python3", "a.py"])).contains("neither PyTorch nor JAX"));
        assert!(why(of(dir.path(), &["python3", "b.py"])).contains("cannot be read"));
        assert!(
            why(of(dir.path(), &["python3", "-m", "torch.distributed.run"])).contains("not in its directory")
        );
        assert!(why(of(dir.path(), &["./a"])).contains("no Python program"));
        write("c.py", "#!/bin/sh\nimport torch\n");
        assert!(why(of(dir.path(), &["./c.py"])).contains("no Python interpreter"));
        write("c.py", "#!/usr/bin/env python3\nimport torch\n");
        assert!(matches!(of(dir.path(), &["./c.py"]), Found::Fit(_)));
    }

    #[test]
    fn odd_files_are_not_waited_for_and_not_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let pipe =
            std::ffi::CString::new(dir.path().join("pipe.py").into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: a path that ends with zero.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        assert!(why(of(dir.path(), &["python3", "pipe.py"])).contains("cannot be read"));
        assert!(why(of(dir.path(), &["python3", "/dev/zero"])).contains("cannot be read"));
        let large = fs::File::create(dir.path().join("large.py")).unwrap();
        large.set_len(1 << 40).unwrap();
        assert!(why(of(dir.path(), &["python3", "large.py"])).contains("cannot be read"));
        let mut many = "import torch\n".to_owned();
        for at in 0..400 {
            fs::write(dir.path().join(format!("m{at}.py")), format!("import m{}\n", at + 1)).unwrap();
            many += &format!("import m{at}\nfrom ....m{at} import *\n");
        }
        fs::write(dir.path().join("many.py"), &many).unwrap();
        assert!(matches!(of(dir.path(), &["python3", "many.py"]), Found::Fit(_)));
        let mut program = Program { folder: dir.path().to_owned(), ..Program::default() };
        program.add(dir.path().join("many.py"), &many);
        program.follow();
        assert_eq!(program.files.len(), MAX_FILES);
    }
}
