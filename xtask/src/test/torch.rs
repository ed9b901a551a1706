//! A server that has PyTorch imported and forks the programs of dry-run tests: each would import it by itself otherwise.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};
use xtask::shell;

/// Starts a program without the hook and without variables of the recorder: both belong to the programs that are forked, and
/// what a process was started with counts before what it has set.
const BARE: &str = r#"unset PYTHONPATH
for name in $(env | sed -n 's/^\(RADRM_[A-Z_0-9]*\)=.*/\1/p'); do unset "$name"; done
exec "$0" "$@""#;

/// The server, until it is dropped.
pub struct Server {
    process: Child,
    folder: PathBuf,
}

impl Server {
    /// Starts it with the Python of an environment and waits until PyTorch is imported.
    ///
    /// # Errors
    /// It cannot be started, or PyTorch cannot be imported.
    pub fn start(python: &Path) -> Result<Self> {
        // Not below target: the path of a socket has 107 bytes at most.
        let folder = std::env::temp_dir().join(format!("radrm-torch-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&folder).with_context(|| folder.display().to_string())?;
        let mut command = shell::command(shell::target_dir().join("debug/radrm-run"));
        command.args([
            "--dry-run",
            "--write-files",
            "--no-profile",
            "--no-dataset",
            "--quiet",
            "--json=/dev/null",
            "--",
        ]);
        command.args(["sh", "-c", BARE]).arg(python);
        command.arg("ld-preload-tests/clients/torch_server.py").arg(folder.join("socket"));
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut server = match process {
            Ok(process) => Self { process, folder },
            Err(error) => {
                let _ = fs::remove_dir_all(&folder);
                return Err(error).context("radrm-run");
            }
        };
        let mut line = String::new();
        if let Some(output) = server.process.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        if line.trim_end() != "ready" {
            bail!("PyTorch cannot be imported in a dry run");
        }
        Ok(server)
    }

    /// Socket at which programs are to be started.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
