//! `cargo xtask aarch64`: everything built for AArch64 (Grace Hopper), and tests run under qemu-user.
//!
//! Programs that a test starts are programs of AArch64 too, so the kernel must run them by qemu. The command registers it in
//! a user namespace, which has a list of its own (binfmt_misc, from Linux 6.7 on): nothing on the machine changes.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::shell;

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Linker and C compiler.
const GCC: &str = "aarch64-linux-gnu-gcc";
const QEMU: &str = "qemu-aarch64";
/// Where Debian's cross packages have the C library.
const PREFIX: &str = "/usr/aarch64-linux-gnu";

/// Tests that make sense under emulation: unit tests, and those of conformance that need nothing of another machine.
const FILTER: &str = "(kind(lib) and not package(xtask)) or (package(radrm-preload-tests) and binary(conformance) \
                      and not test(/^(packages|documents|gpu_bundle|genuine|clients|monitors|hosts)::/))";

/// What was not run, and why.
const NOT_RUN: [(&str, &str); 5] = [
    (
        "tests of accounting, kernels, limits and the daemon",
        "qemu-user has no process_vm_readv and no ptrace",
    ),
    ("tests of the programs radrm, radrm-run and radrmd", "they watch times and signals of real processes"),
    ("Python clients, PyTorch and dry runs", "there is no Python of AArch64 here"),
    ("packages, documents, the bundle for GPUs, NVIDIA's own libraries", "they are of x86-64"),
    (
        "anything on a GPU, and a kernel with pages of 64 KiB",
        "there is none; the shim steps aside where pages are not 4 KiB",
    ),
];

/// Registers qemu in the namespace, then runs what follows.
const REGISTER: &str = r#"
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf '%s' ':aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$QEMU"':' \
    > /proc/sys/fs/binfmt_misc/register
exec "$@"
"#;

/// Options of `aarch64`.
#[derive(clap::Args)]
pub struct Flags {
    /// Only build.
    #[arg(long)]
    build_only: bool,
    /// Other tests than unit tests and conformance: a filter of cargo-nextest.
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
}

/// Builds, tests, and says what was not tested.
///
/// # Errors
/// A tool is missing, with the command that installs it; something does not build; a test fails.
pub fn run(flags: &Flags) -> Result<()> {
    let root = shell::read(shell::command("rustc").args(["--print", "sysroot"]))?;
    let library = std::path::Path::new(root.trim()).join("lib/rustlib").join(TARGET);
    ensure!(library.exists(), "Rust's library for {TARGET} is missing: rustup target add {TARGET}");
    ensure!(
        shell::exists(GCC),
        "{GCC} is missing: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    );
    shell::run(cargo().args(["build", "--workspace", "--all-targets", "--keep-going", "--target", TARGET]))?;
    if flags.build_only {
        return Ok(());
    }
    ensure!(shell::exists(QEMU), "{QEMU} is missing: apt-get install qemu-user");
    ensure!(shell::exists("cargo-nextest"), "cargo-nextest is missing: cargo install cargo-nextest --locked");
    let qemu = shell::read(shell::command("sh").args(["-c", &format!("command -v {QEMU}")]))?;
    let tests = cargo();
    let mut command = shell::command("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-ec", REGISTER, "sh"])
        .arg(tests.get_program());
    for (name, value) in tests.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command
        .args(["nextest", "run", "--workspace", "--target", TARGET, "--no-fail-fast", "-E"])
        .arg(flags.filter.as_deref().unwrap_or(FILTER))
        .env("QEMU", qemu.trim())
        .env("QEMU_LD_PREFIX", PREFIX)
        .env("RADRM_TEST_NO_BUILD", "1")
        .env("RADRM_TEST_CC", GCC);
    let done = shell::run(&mut command);
    if flags.filter.is_none() {
        for (what, why) in NOT_RUN {
            eprintln!("xtask: not run: {what}: {why}");
        }
    }
    done
}

/// Cargo with the tools of the target.
fn cargo() -> Command {
    let mut cargo = shell::cargo();
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", GCC).env("CC_aarch64_unknown_linux_gnu", GCC);
    cargo
}
