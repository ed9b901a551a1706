//! `cargo xtask aarch64`: everything built for AArch64 (Grace Hopper), and unit tests and the shim's own run under qemu-user.
//!
//! Programs that a test starts are programs of AArch64 too, so the kernel must run them by qemu. The command registers it in
//! a user namespace, which has a list of its own (binfmt_misc, from Linux 6.7 on): nothing on the machine changes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use xtask::shell;

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Linker and C compiler.
const GCC: &str = "aarch64-linux-gnu-gcc";
/// Before this version emulated GPUs take minutes to reserve their addresses, and a process does not know its own start.
const QEMU_VERSION: u32 = 10;
/// Folder of the C library of Debian's cross packages.
const PREFIX: &str = "/usr/aarch64-linux-gnu";

/// Tests that make sense under emulation.
const FILTER: &str = "(kind(lib) or package(radrm-shim)) and not package(/^xtask/)";

/// Parts that are not run, with the reasons.
const NOT_RUN: [(&str, &str); 7] = [
    (
        "tests of conformance, besides those of the shim on a small driver",
        "a shell of x86-64 starts their programs, and qemu-user tells a process another start than the kernel tells \
         radrm-run, which then takes it for another process (--filter runs them)",
    ),
    (
        "tests of accounting, kernels, limits and the daemon",
        "qemu-user has no process_vm_readv and no ptrace",
    ),
    ("tests of the programs radrm, radrm-run and radrmd", "they watch times and signals of real processes"),
    ("Python clients, PyTorch and dry runs", "there is no Python of AArch64 here"),
    ("packages, documents, the bundle for GPUs, NVIDIA's own libraries", "they are of x86-64"),
    ("anything on a GPU", "there is none"),
    ("a kernel with pages of 16 or 64 KiB", "qemu-user has the pages of this machine's kernel"),
];

/// Unit tests that fail under emulation, and why.
const FAILING: [(&str, &[&str]); 4] = [
    (
        "they give files to other users, and the namespace has one",
        &[
            "engine::processes::tests::a_folder_left_by_a_killed_daemon_is_given_to_its_user",
            "events::tests::the_log_is_radrmds_alone_and_nothing_that_others_put_in_its_place",
            "job_files::tests::an_administrators_link_leads_to_no_other_file_of_the_jobs_user",
            "job_files::tests::output_is_opened_with_the_rights_of_the_jobs_user",
            "replay::input::tests::of_another_users_table_less_is_read_and_the_bound_is_stated",
            "show::report::tests::the_profile_of_another_user_is_read_within_tighter_bounds",
            "untrusted::tests::another_users_file_in_the_place_of_an_output_is_not_opened",
            "untrusted::tests::files_of_other_users_are_told_from_the_own_and_from_roots",
            "ledger::scope::tests::a_process_of_another_user_holds_nothing",
            "hooks::tests::a_program_that_others_can_change_is_rejected",
            "jobs::tests::a_file_that_a_launcher_holds_is_its_segment_only_if_it_is_its_users",
            "ledgers::tests::scopes_lie_where_only_their_administrator_makes_files",
            "program::target::tests::setuid_of_another_user_is_found_and_of_ourselves_is_harmless",
            "ledger::scope::tests::a_false_claim_counts_up_to_the_gpus_memory",
            "ledger::scope::tests::a_ledger_whose_owner_changed_its_mode_is_not_joined",
            "ledger::scope::tests::a_shortened_ledger_raises_no_signal_in_others",
            "ledger::scope::tests::a_user_who_is_added_later_counts_for_those_who_run",
            "ledger::scope::tests::a_word_that_was_written_over_gets_no_more_memory",
            "ledger::scope::tests::random_bytes_refuse_no_request_that_fits",
            "ledger::scope::tests::rows_beyond_the_first_chunk_count",
            "ledger::scope::tests::the_administrators_limit_holds_at_once_and_members_only_lower_it",
            "ledger::scope::tests::what_other_users_reserved_counts",
        ],
    ),
    (
        "qemu-user lacks what they are about (process_vm_readv, exits by pidfd, MADV_DONTFORK, MADV_POPULATE_WRITE), or makes up what a process \
         reads of itself",
        &[
            "carriers::tests::a_process_of_which_nothing_says_where_it_comes_from_is_only_possible",
            "dcgm::tests::why_there_is_nothing_is_said",
            "filters::tests::what_kills_the_child_is_not_permitted",
            "mapped::tests::a_process_has_its_own_program_mapped",
            "members::tests::only_a_process_of_the_owner_that_maps_the_file_has_joined",
            "process::tests::this_process_is_described",
            "exits::tests::exits_of_others_are_known_once_their_parents_know_them",
            "host::tests::spans_follow_each_other_and_grow_rare",
            "engine::stream::memops::tests::words_are_read_and_written_only_where_there_is_memory",
            "process::tests::a_childs_figures_are_those_of_the_system",
            "witness::tests::a_witness_sees_only_what_reaches_it_and_goes",
            "stacks::cursor::tests::numbers_of_variable_length_are_read",
            "stacks::memory::tests::a_new_stack_sees_what_memory_holds_now",
            "stacks::memory::tests::only_the_part_that_was_read_is_compared",
            "stacks::memory::tests::what_is_not_mapped_is_no_value_and_what_lies_across_pages_is_whole",
            "stacks::modules::tests::modules_are_found_by_their_addresses_with_tables_and_build_id",
            "stacks::python::code::tests::every_form_of_an_entry_is_read",
            "stacks::python::code::tests::tables_of_older_versions_are_read",
            "lock::tests::a_forked_child_does_not_keep_its_parents_lock",
            "sys::tests::a_range_that_begins_inside_a_page_is_allocated",
            "ledger::scope::tests::a_users_scope_needs_no_other_user",
        ],
    ),
    (
        "the programs of this system are of another machine",
        &["program::target::tests::ordinary_programs_and_scripts_are_seen"],
    ),
    (
        "the reason is not known: one finds no function by its address, the other gets nothing of a shell after its answer",
        &[
            "file::tests::a_function_of_this_program_has_its_name_and_line",
            "recorder::tests::the_rest_of_a_command_line_comes_later",
        ],
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
    /// The emulator, of version 10 or newer; statically linked, so that nothing is preloaded into it.
    #[arg(long, value_name = "PROGRAM", default_value = "qemu-aarch64")]
    qemu: PathBuf,
    /// Other tests than unit tests: a filter of cargo-nextest.
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
}

/// Builds, tests, and says what was not tested.
///
/// # Errors
/// A tool is missing, with the command that installs it; something does not build; a test fails.
pub fn run(flags: &Flags) -> Result<()> {
    let root = shell::read(shell::command("rustc").args(["--print", "sysroot"]))?;
    let library = Path::new(root.trim()).join("lib/rustlib").join(TARGET);
    ensure!(library.exists(), "Rust's library for {TARGET} is missing: rustup target add {TARGET}");
    ensure!(
        shell::exists(GCC),
        "{GCC} is missing: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    );
    shell::run(cargo().args(["build", "--workspace", "--all-targets", "--keep-going", "--target", TARGET]))?;
    if flags.build_only {
        return Ok(());
    }
    ensure!(shell::exists("cargo-nextest"), "cargo-nextest is missing: cargo install cargo-nextest --locked");
    let qemu = qemu(&flags.qemu)?;
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
        .arg(flags.filter.clone().unwrap_or_else(usual_tests))
        .env("QEMU", qemu)
        .env("QEMU_LD_PREFIX", PREFIX)
        .env("RADRM_TEST_NO_BUILD", "1")
        .env("RADRM_TEST_CC", GCC);
    let done = shell::run(&mut command);
    if flags.filter.is_none() {
        for (what, why) in NOT_RUN {
            eprintln!("xtask: not run: {what}: {why}");
        }
        for (why, tests) in FAILING {
            eprintln!("xtask: not run: {}: {why}", tests.join(", "));
        }
    }
    done
}

/// The tests that are run, as nextest names them.
fn usual_tests() -> String {
    let failing: Vec<_> =
        FAILING.iter().flat_map(|(_, tests)| *tests).map(|test| format!("test(={test})")).collect();
    format!("({FILTER}) and not ({})", failing.join(" or "))
}

/// The path of an emulator that is new enough.
fn qemu(program: &Path) -> Result<String> {
    let shown = program.display();
    let help = "apt-get install qemu-user in Debian 13, or --qemu PROGRAM";
    let find = shell::read(shell::command("sh").args(["-c", "command -v \"$0\""]).arg(program));
    let path = find.with_context(|| format!("{shown} is missing: {help}"))?;
    let said = shell::read(shell::command(path.trim()).arg("--version"))?;
    let version = major(&said).with_context(|| format!("{shown} has no version: {said}"))?;
    ensure!(version >= QEMU_VERSION, "{shown} is version {version}, and {QEMU_VERSION} is needed: {help}");
    Ok(path.trim().to_owned())
}

/// The first number of `qemu-aarch64 version 10.0.13 (Debian ...)`.
fn major(said: &str) -> Option<u32> {
    said.split_once("version ")?.1.split('.').next()?.parse().ok()
}

/// Cargo with the tools of the target.
fn cargo() -> Command {
    let mut cargo = shell::cargo();
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", GCC).env("CC_aarch64_unknown_linux_gnu", GCC);
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_qemu_is_read() {
        assert_eq!(
            major("qemu-aarch64 version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)\nCopyright"),
            Some(10)
        );
        assert_eq!(major("qemu-aarch64 version 7.2.22 (Debian 1:7.2)"), Some(7));
        assert_eq!(major("something else"), None);
    }
}
