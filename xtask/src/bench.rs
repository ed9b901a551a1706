//! `cargo xtask bench`.

use anyhow::{Result, bail};

use xtask::shell;

/// Options of `bench`.
#[derive(clap::Args)]
pub struct Flags {
    /// File of the table.
    #[arg(long, default_value = "bench/RESULTS.md")]
    out: String,
    /// Further arguments for the measuring program.
    #[arg(last = true)]
    further: Vec<String>,
}

/// Builds the libraries as they ship and measures them.
pub fn run(flags: &Flags) -> Result<()> {
    if !shell::root().join("ld-preload-tests/src/bin").is_dir() {
        bail!("there is no measuring program in ld-preload-tests/src/bin");
    }
    shell::run(shell::cargo().args(["build", "--release", "--workspace"]))?;
    shell::run(shell::cargo().args(["build", "--profile", "preload", "-p", shell::SHIM]))?;
    shell::take_preload(&shell::target_dir().join("release"))?;
    shell::run(
        shell::cargo()
            .args(["run", "--quiet", "--release", "-p", "radrm-preload-tests", "--bin", "radrm-bench", "--"])
            .args(["--out", &flags.out])
            .args(&flags.further)
            // Everything was built above, with the features of the whole workspace.
            .env("RADRM_TEST_NO_BUILD", "1"),
    )
}
