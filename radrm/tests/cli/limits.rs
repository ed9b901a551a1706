//! Limits: what is refused before the program starts, and what the program is told.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Output, Place, finish};

const MACHINE: [&str; 5] = ["--quiet", "--no-profile", "--no-dataset", "--emulate", "2xA100-40GB"];

/// `radrm-run` on two emulated GPUs with these options, running `env`.
fn run(place: &Place, options: &[&str]) -> Command {
    let mut command = place.run(&MACHINE);
    command.args(options).args(["--", "env"]).env("XDG_CONFIG_HOME", place.join("config"));
    for name in ["RADRM_CONFIG", "RADRM_QUOTA", "RADRM_LEDGERS", "RADRM_SEGMENT"] {
        command.env_remove(name);
    }
    command
}

fn value(output: &Output, name: &str) -> Option<String> {
    let text = output.text();
    text.lines().find_map(|line| line.strip_prefix(&format!("{name}=")).map(str::to_owned))
}

/// Writes the user's own file.
fn own_config(place: &Place, text: &str) {
    fs::create_dir_all(place.join("config/radrm")).unwrap();
    fs::write(place.join("config/radrm/radrm.toml"), text).unwrap();
}

#[test]
fn a_limit_that_is_not_understood_or_names_no_gpu_keeps_the_program_from_starting() {
    let place = Place::new();
    for (limit, part) in [
        ("10G", "can mean two things"),
        ("lots", "is not an amount"),
        ("110%", "between 0% and 100%"),
        ("0=1GiB,0=2GiB", "named twice"),
        ("2=1GiB", "there is no GPU 2, only 0, 1"),
        ("GPU-ffffffff-ffff=1GiB", "no GPU whose UUID begins with"),
        ("GPU-=1GiB", "names no GPU"),
    ] {
        let output = finish(&mut run(&place, &["--mem-limit", limit]));
        output.code(125).one_sentence(part);
        assert_eq!(output.text(), "", "{limit}: the program ran");
    }
}

#[test]
fn a_program_under_a_limit_is_told_where_to_count() {
    let place = Place::new();
    let output = finish(&mut run(&place, &[]));
    assert_eq!((value(&output, "RADRM_QUOTA"), value(&output, "RADRM_LEDGERS")), (None, None));
    for limit in ["1GiB", "50%", "0=1GiB,1=20%", "1=none"] {
        let output = finish(&mut run(&place, &["--mem-limit", limit]));
        output.code(0);
        assert_eq!(value(&output, "RADRM_QUOTA").as_deref(), Some("1"), "{limit}");
        assert_eq!(value(&output, "RADRM_LEDGERS"), None, "only the job is limited");
    }
    own_config(&place, "[default]\nmem-limit = \"5GiB\"\n");
    let output = finish(&mut run(&place, &["--mem-limit", "1GiB"]));
    let ledger = value(&output, "RADRM_LEDGERS").unwrap();
    assert!(ledger.contains(".user-") && ledger.contains("/member-"), "{ledger}");
}

#[test]
fn a_wrong_configuration_keeps_the_program_from_starting_and_names_the_line() {
    let place = Place::new();
    for (text, part) in [
        ("\n[default]\nmem_limit = \"1GiB\"\n", "radrm.toml, line 3: unknown field `mem_limit`"),
        ("[default]\nmem-limit = \"3=1GiB\"\n", "there is no GPU 3"),
        ("[user.root]\n", "belongs into /etc/radrm/radrm.toml"),
        ("[mps]\nactive-thread-percentage = 101\n", "line 2"),
    ] {
        own_config(&place, text);
        finish(&mut run(&place, &[])).code(125).one_sentence(part);
    }
    own_config(&place, "");
    let absent = place.join("absent.toml");
    finish(run(&place, &[]).env("RADRM_CONFIG", &absent))
        .code(125)
        .one_sentence("absent.toml cannot be read");
}

#[test]
fn a_further_file_limits_users_and_groups() {
    let place = Place::new();
    let file = place.join("node.toml");
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let text = format!("[user.{uid}]\nmem-limit = \"5GiB\"\n[group.{gid}]\nmem-limit = \"50%\"\n");
    fs::write(&file, text).unwrap();
    let output = finish(run(&place, &[]).env("RADRM_CONFIG", &file));
    let ledgers = value(output.code(0), "RADRM_LEDGERS").unwrap();
    let (user, group) = ledgers.split_once(':').unwrap();
    assert!(user.ends_with(&format!(".user-{uid}/member-{uid}")), "{user}");
    assert!(group.ends_with(&format!(".group-{gid}/member-{uid}")), "{group}");
    // Whatever belongs to an emulated machine goes with it.
    assert!(!Path::new(user).exists());
}

#[test]
fn a_limit_that_cannot_hold_keeps_the_program_from_starting() {
    let place = Place::new();
    let limited = ["--mem-limit", "1GiB"];
    finish(run(&place, &limited).env("RADRM_DISABLE", "1")).code(125).one_sentence("RADRM_DISABLE is set");
    // Also a limit that comes from a file.
    own_config(&place, "[default]\nmem-limit = \"5GiB\"\n");
    finish(run(&place, &[]).env("RADRM_DISABLE", "1")).code(125).one_sentence("RADRM_DISABLE is set");
    own_config(&place, "");
    // A file that is not a library of this machine, in the shim's place.
    let library = place.join("lib");
    fs::create_dir(&library).unwrap();
    fs::write(library.join("libradrm.so"), "text").unwrap();
    let mut command = place.run(&["--mem-limit", "1GiB", "--no-dataset", "--", "env"]);
    finish(command.env("RADRM_LIB_DIR", &library)).code(125).one_sentence("is not a shared library");
    // No room for the segment: the limit on file sizes is below its size.
    let script = format!(
        "ulimit -f 64; exec {} --mem-limit 1GiB --no-profile --no-dataset env",
        env!("CARGO_BIN_EXE_radrm-run")
    );
    let output = finish(&mut place.command("/bin/sh", &["-c", &script]));
    output.code(125).one_sentence("no limit can hold");
}

#[test]
fn a_job_inside_a_limited_one_stays_a_part_of_it() {
    let place = Place::new();
    let inner = env!("CARGO_BIN_EXE_radrm-run");
    let mut command =
        place.run(&["--quiet", "--no-profile", "--no-dataset", "--mem-limit", "1GiB", "--", "sh", "-c"]);
    command.arg(format!(
        "echo $RADRM_SEGMENT; {inner} --no-dataset sh -c 'echo $RADRM_SEGMENT; echo $RADRM_QUOTA'"
    ));
    let output = finish(&mut command);
    let text = output.code(0).text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[2]), (lines[1], "1"), "the inner program counts in the outer job");
    output.one_sentence("is counted there");
    assert_eq!(place.profiles(), Vec::<String>::new());
    let mut command =
        place.run(&["--quiet", "--no-profile", "--no-dataset", "--mem-limit", "1GiB", "--", inner]);
    finish(command.args(["--mem-limit", "2GiB", "env"]))
        .code(125)
        .one_sentence("already inside a job with a limit");
}
