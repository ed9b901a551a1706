//! Limits that users share, among users who do what they can to the files: no member harms another or lifts a
//! limit. Jobs are real processes of different users.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use radrm_os::Process;
use radrm_preload_tests::{
    artifacts,
    child::{self, Ended, Running},
    rig::PATIENCE,
};

use super::commands::{Node, finish};
use super::users::{ALICE, BOB, GROUP, OUTSIDER, as_user, open_to_others};

/// A node on which alice and bob share 1 GiB of a GPU of 4 GiB.
pub(super) struct Shared {
    pub(super) node: Node,
    config: PathBuf,
}

impl Shared {
    /// `None`, said aloud, where other users' processes cannot be started.
    fn new() -> Option<Self> {
        Self::with(&format!("[group.{GROUP}]\nmem-limit = \"1GiB\"\n"))
    }

    pub(super) fn with(config: &str) -> Option<Self> {
        let node = Node::new(1);
        if !open_to_others(&node) {
            return None;
        }
        let config = node.config(config);
        let shared = Self { node, config };
        shared.set_up().ok();
        // A ledger that was in use: an attack on it changes what it holds.
        finish(shared.start(BOB, &["use:0", "alloc:a:100m", "pause"]));
        Some(shared)
    }

    /// Set-up by root, done once.
    fn set_up(&self) -> Ended {
        self.node.set_up(&self.config, &[ALICE, BOB])
    }

    /// A program under `radrm-run` as a user, with words before the launcher (`outside`) or before the program.
    pub(super) fn wrapped(
        &self,
        user: u32,
        words: &[String],
        outside: bool,
        program: &Path,
        arguments: &[&str],
    ) -> Command {
        let run = self.node.run(&[], &[]);
        let mut own: Vec<OsString> = vec![run.get_program().to_owned()];
        // The last word is the program of `Node::run`.
        own.extend(run.get_args().map(ToOwned::to_owned));
        own.pop();
        let words = words.iter().map(OsString::from);
        let all: Vec<OsString> =
            if outside { words.chain(own).collect() } else { own.into_iter().chain(words).collect() };
        let mut command = self.node.rig.bare_command(&all[0]);
        for (name, value) in run.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(&all[1..]).arg(program).args(arguments).env("RADRM_CONFIG", &self.config);
        as_user(command, user, GROUP)
    }

    fn command(&self, user: u32, steps: &[&str]) -> Command {
        let mut command = self.node.run(&[], steps);
        command.env("RADRM_CONFIG", &self.config);
        as_user(command, user, GROUP)
    }

    fn start(&self, user: u32, steps: &[&str]) -> Running {
        self.start_known(user, steps).0
    }

    /// A job that stops at its first `pause`, and its process.
    pub(super) fn start_known(&self, user: u32, steps: &[&str]) -> (Running, u32) {
        let mut running = Running::start(self.command(user, steps), PATIENCE);
        let pid = running.until_ready();
        (running, pid)
    }

    /// A folder with the stand-in of MPS's control program, under the real one's name.
    pub(super) fn stand_in(&self) -> PathBuf {
        let bin = self.node.rig.path().join("bin");
        fs::create_dir_all(&bin).expect("folder");
        let link = bin.join("nvidia-cuda-mps-control");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_radrm-mps-standin"), link).expect("stand-in");
        bin
    }

    /// A command of a user's `radrm-run --mps` with the stand-in in `PATH`.
    fn mps(&self, user: u32, bin: &Path, program: &str) -> Command {
        let run = self.node.run(&["--mps"], &[]);
        let mut words: Vec<OsString> = run.get_args().map(ToOwned::to_owned).collect();
        words.pop();
        let mut command = self.node.rig.bare_command(run.get_program());
        for (name, value) in run.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(words).args(["/bin/sh", "-c", program]).env("RADRM_CONFIG", &self.config);
        command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        as_user(command, user, GROUP)
    }

    /// A job of a user under MPS that waits for a line, and its pipe directory.
    pub(super) fn under_mps(&self, user: u32, bin: &Path, behaviour: &str) -> (Running, String) {
        let mut command = self.mps(user, bin, "echo $CUDA_MPS_PIPE_DIRECTORY; read end");
        command.env("RADRM_MPS_STANDIN", behaviour);
        let mut job = Running::start(command, PATIENCE);
        let pipe = job.line().trim().to_owned();
        (job, pipe)
    }

    /// End of a user's job under MPS that names this pipe directory.
    pub(super) fn joining(&self, user: u32, bin: &Path, pipe: &str) -> Ended {
        let mut command = self.mps(user, bin, "true");
        command.env("CUDA_MPS_PIPE_DIRECTORY", pipe).env("RADRM_MPS_STANDIN", "v3");
        child::run(command, PATIENCE)
    }

    /// End of shell words of a user.
    pub(super) fn shell(&self, user: u32, words: &str) -> Ended {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", words]).current_dir("/");
        child::run(as_user(command, user, GROUP), PATIENCE)
    }

    /// The directories of the limits that are in force: the group's, then alice's.
    pub(super) fn scopes(&self) -> Vec<PathBuf> {
        let machine = self.node.rig.machine_path();
        [format!("group-{GROUP}"), format!("user-{ALICE}")]
            .map(|name| PathBuf::from(format!("{}.{name}", machine.display())))
            .into_iter()
            .filter(|path| path.is_dir())
            .collect()
    }

    /// Runs shell words as a user, for every file of the scopes (`$f`) and then for each directory (`$d`); what the
    /// system refuses is of no interest.
    fn attack(&self, user: u32, on_file: &str, on_directory: &str) {
        let scopes = self.scopes();
        assert!(!scopes.is_empty(), "nothing to attack");
        for scope in scopes {
            let script = format!(
                "d='{}'; for f in \"$d\"/*; do {on_file}; done 2>/dev/null; ({on_directory}) 2>/dev/null; true",
                scope.display()
            );
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &script]).current_dir("/");
            child::run(as_user(command, user, GROUP), PATIENCE).ok();
        }
    }

    /// A job of alice's runs through bob's attack and gets memory up to the limit and not beyond; so does one that
    /// starts after it, and both together.
    fn holds_against(&self, on_file: &str, on_directory: &str) {
        let steps = ["use:0", "alloc:a:300m", "pause", "alloc:b:100m", "toomuch:c:700m", "pause"];
        let mut alice = self.start(ALICE, &steps);
        self.attack(BOB, on_file, on_directory);
        alice.go_on();
        alice.until_ready();
        finish(self.start(ALICE, &["use:0", "toomuch:a:700m", "alloc:b:600m", "pause"]));
        finish(alice);
    }
}

macro_rules! holds_against {
    ($($name:ident: $file:literal, $directory:literal;)*) => {$(
        #[test]
        fn $name() {
            if let Some(shared) = Shared::new() {
                shared.holds_against($file, $directory);
            }
        }
    )*};
}

holds_against! {
    a_truncated_ledger_kills_no_other_members_job: "truncate -s 0 \"$f\"", ":";
    a_ledger_cut_in_the_middle_kills_no_other_members_job: "truncate -s 9000 \"$f\"", ":";
    random_bytes_in_a_ledger_harm_no_other_member:
        "dd if=/dev/urandom of=\"$f\" bs=64k count=8 conv=notrunc", ":";
    a_ledger_full_of_ones_harms_no_other_member:
        "tr '\\0' '\\377' </dev/zero | dd of=\"$f\" bs=64k count=8 iflag=fullblock conv=notrunc", ":";
    a_renamed_ledger_lifts_no_limit: "mv \"$f\" \"$f.gone\"", "mv \"$d\" \"$d.gone\"";
    a_removed_ledger_lifts_no_limit: "rm -f \"$f\"", "rm -rf \"$d\"";
    a_link_in_a_ledgers_place_lifts_no_limit:
        "ln -sf /dev/null \"$f\"", "mv \"$d\" \"$d.gone\"; ln -s /tmp \"$d\"";
    a_closed_ledger_harms_no_other_member: "chmod 000 \"$f\"", "chmod 000 \"$d\"";
    an_opened_ledger_harms_no_other_member: "chmod 666 \"$f\"", "chmod 777 \"$d\"";
    squatted_names_harm_no_other_member:
        ":", "for n in ledger limits limit member-64001 member-64009 draft-1; do mkdir \"$d/$n\"; touch \"$d/$n\"; done";
    a_ledger_made_longer_harms_no_other_member: "truncate -s 2M \"$f\"", ":";
}

#[test]
fn a_user_does_not_lift_the_own_limit_with_the_files() {
    for (on_file, on_directory) in [
        ("mv \"$f\" \"$f.gone\"", "mv \"$d\" \"$d.gone\""),
        ("rm -f \"$f\"", "rm -rf \"$d\""),
        ("dd if=/dev/zero of=\"$f\" bs=64k count=8 conv=notrunc", ":"),
        ("truncate -s 0 \"$f\"", ":"),
        ("chmod 666 \"$f\"", ":"),
    ] {
        let Some(shared) = Shared::with(&format!("[user.{ALICE}]\nmem-limit = \"1GiB\"\n")) else { return };
        let alice = shared.start(ALICE, &["use:0", "alloc:a:600m", "pause"]);
        shared.attack(ALICE, on_file, on_directory);
        // Counted as before, without memory, or not started at all.
        let ended = child::run(shared.command(ALICE, &["use:0", "toomuch:a:600m"]), PATIENCE);
        let refused = ended.status.code() == Some(125) && ended.stderr.contains("radrm quota init");
        assert!(ended.status.success() || refused, "{on_file}: {ended:?}");
        drop(alice);
    }
}

#[test]
fn a_damaged_ledger_is_its_owners_loss_until_root_sets_it_up_again() {
    let Some(shared) = Shared::new() else { return };
    shared.attack(BOB, "truncate -s 100 \"$f\"", ":");
    let ended = child::run(shared.command(BOB, &["use:0"]), PATIENCE);
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.stderr.contains("radrm quota init") && ended.stderr.lines().count() == 1, "{ended:?}");
    let said = shared.set_up().ok().stdout;
    assert!(said.contains(&format!("user {BOB}")) && said.contains("is new"), "{said}");
    finish(shared.start(BOB, &["use:0", "alloc:a:600m", "pause"]));
}

#[test]
fn a_limit_that_was_not_set_up_starts_nothing_and_says_what_to_type() {
    let Some(shared) = Shared::new() else { return };
    let ended = child::run(shared.command(OUTSIDER, &["use:0"]), PATIENCE);
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    let expected =
        format!("`radrm quota init --machine {} user:{OUTSIDER}`", shared.node.rig.machine_path().display());
    assert!(ended.stderr.contains(&expected) && ended.stderr.lines().count() == 1, "{ended:?}");
}

#[test]
fn memory_of_a_killed_member_is_back_for_other_members() {
    let Some(shared) = Shared::new() else { return };
    for _ in 0..20 {
        let bob = shared.start(BOB, &["use:0", "alloc:a:900m", "pause"]);
        let mut alice = shared.start(ALICE, &["use:0", "toomuch:a:200m", "pause", "alloc:a:1000m", "pause"]);
        bob.kill();
        alice.go_on();
        alice.until_ready();
        finish(alice);
    }
}

#[test]
fn two_members_at_once_are_never_both_granted_what_does_not_fit() {
    let Some(shared) = Shared::new() else { return };
    for _ in 0..25 {
        let steps = ["use:0", "pause", "alloc:a:600m", "pause"];
        let mut both = [ALICE, BOB].map(|user| shared.start(user, &steps));
        both.iter_mut().for_each(Running::go_on);
        let ended = both.map(|mut one| {
            one.go_on();
            one.end().status.success()
        });
        // One may come after the other has ended.
        assert!(ended.contains(&true), "{ended:?}");
        for gpu in shared.node.rig.ledgers().iter().flat_map(|ledger| &ledger.gpus) {
            assert!(gpu.total_requested_peak <= 1 << 30, "{gpu:?}");
        }
    }
}

/// A place of its own for `/run` and `/etc`, as the files in `contrib` and the guide set it up, and shell words in it.
fn on_a_set_up_node(script: &str) -> Option<Ended> {
    let may = |words: &[&str]| {
        Command::new(words[0]).args(&words[1..]).output().is_ok_and(|output| output.status.success())
    };
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !is_root || !may(&["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]) {
        eprintln!("skipped: only root mounts");
        return None;
    }
    let contrib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/systemd");
    let options = |unit: &str| {
        let text = fs::read_to_string(contrib.join(unit)).expect("a mount unit");
        let line =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).expect("a line").to_owned();
        assert_eq!((line("What="), line("Type=")), ("tmpfs".to_owned(), "tmpfs".to_owned()));
        format!("mkdir -p {0}\nmount -t tmpfs -o {1} tmpfs {0}\n", line("Where="), line("Options="))
    };
    let setup = format!(
        "set -e\nmount -t tmpfs -o mode=755 none /run\n{}{}set +e\nradrm() {{ {} \"$@\"; }}\n\
         alice() {{ setpriv --reuid={ALICE} --regid={GROUP} --clear-groups \"$@\"; }}\n\
         bob() {{ setpriv --reuid={BOB} --regid={GROUP} --clear-groups \"$@\"; }}\n",
        options("run-radrm.mount"),
        options("run-radrm-limits.mount"),
        artifacts::file("radrm").display()
    );
    let place = tempfile::tempdir().expect("directory");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("mode");
    let config = place.path().join("radrm.toml");
    fs::write(&config, format!("[group.{GROUP}]\nmem-limit = \"1GiB\"\n")).expect("file");
    let mut command = Command::new("unshare");
    command.args(["--mount", "/bin/bash", "-c", &format!("{setup}{script}")]).current_dir("/");
    command.env("RADRM_CONFIG", &config).env("RADRM_LIB_DIR", artifacts::directory());
    command
        .env("RUN", artifacts::file("radrm-run"))
        .env_remove("XDG_RUNTIME_DIR")
        .env("HOME", "/nonexistent");
    artifacts::file("libradrm.so");
    Some(child::run(command, PATIENCE))
}

#[test]
fn on_a_node_set_up_as_documented_limits_are_joined_and_nothing_can_be_squatted() {
    let script = format!(
        "alice $RUN --quiet --no-profile --no-dataset -- true 2>&1; echo code $?
        radrm quota init group:{GROUP} user:{ALICE} user:{BOB}
        alice $RUN --quiet --no-profile --no-dataset -- sh -c 'echo $RADRM_LEDGERS $RADRM_SEGMENT'
        stat -c '%a %u %n' /run/radrm /run/radrm/limits /run/radrm/{ALICE} /run/radrm/limits/*
        for d in /run/radrm /run/radrm/limits /run/radrm/limits/group-{GROUP} /run/radrm/{ALICE}; do
            bob mkdir $d/64009 2>/dev/null && echo squatted $d
            bob touch $d/x 2>/dev/null && echo squatted $d
            bob mv $d $d.gone 2>/dev/null && echo renamed $d
        done; true"
    );
    let Some(ended) = on_a_set_up_node(&script) else { return };
    let text = ended.ok().stdout;
    assert!(text.contains("root sets it up by `radrm quota init user:64001`\ncode 125\n"), "{text}");
    let ledgers = format!("/run/radrm/limits/group-{GROUP}/member-{ALICE} /run/radrm/{ALICE}/segment-");
    assert!(text.contains(&ledgers), "{text}");
    for line in [
        "755 0 /run/radrm".to_owned(),
        "755 0 /run/radrm/limits".to_owned(),
        format!("700 {ALICE} /run/radrm/{ALICE}"),
        format!("755 0 /run/radrm/limits/group-{GROUP}"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(!text.contains("squatted") && !text.contains("renamed"), "{text}");
}

#[test]
fn a_user_who_fills_what_is_writable_hinders_no_other_user() {
    let script = format!(
        "radrm quota init group:{GROUP} user:{ALICE} user:{BOB}
        bob dd if=/dev/zero of=/run/radrm/{BOB}/filler bs=1M 2>/dev/null
        bob dd if=/dev/zero of=/run/radrm/limits/group-{GROUP}/member-{BOB} bs=1M oflag=append conv=notrunc 2>/dev/null
        i=0; while bob touch /run/radrm/{BOB}/$i 2>/dev/null; do i=$((i+1)); [ $i -lt 300 ] || break; done
        df --output=avail /run /run/radrm /run/radrm/limits
        alice $RUN --quiet --no-profile --no-dataset -- true; echo code $?
        radrm quota init group:{GROUP} user:{ALICE} user:{BOB} user:{OUTSIDER}"
    );
    let Some(ended) = on_a_set_up_node(&script) else { return };
    let text = ended.ok().stdout;
    let mut rows = text.lines().skip_while(|line| !line.contains("Avail")).skip(1);
    let mut available = || rows.next().expect("a row").trim().parse::<u64>().expect("KiB");
    assert!(available() > 1024, "the rest of /run: {text}");
    assert_eq!((available(), available()), (0, 0), "{text}");
    assert!(text.contains("code 0\n"), "alice's job starts all the same: {text}");
    assert!(text.contains("was made longer"), "there is room for another user again: {text}");
}

/// The modes of files by their names, from the table of limits in docs/security.md.
fn modes() -> Vec<(String, u32)> {
    let text = fs::read_to_string(artifacts::workspace().join("docs/security.md")).expect("the page");
    let rows = text.split("## radrmd").next().expect("the first table").lines();
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [file, _, mode, _] = cells[..] else { return None };
        Some((file.trim_matches('`').to_owned(), u32::from_str_radix(mode, 8).ok()?))
    };
    rows.filter_map(row).collect()
}

/// Returns true if a path has a form such as `SCOPES/user-*/limits`.
fn has_form(path: &str, form: &str) -> bool {
    let (names, forms): (Vec<&str>, Vec<&str>) = (path.split('/').collect(), form.split('/').collect());
    let is_like = |(name, form): (&&str, &&str)| match form.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == form,
    };
    names.len() == forms.len() && names.iter().zip(&forms).all(is_like)
}

/// A file system that goes with this.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn files_of_limits_have_the_modes_of_the_table() {
    let Some(shared) = Shared::new() else { return };
    let runtime = shared.node.rig.path().join("run");
    fs::create_dir(&runtime).expect("a directory");
    std::os::unix::fs::chown(&runtime, Some(BOB), None).expect("owner");
    // Segments lie in memory only.
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &format!("uid={BOB},mode=700"), "none"]).arg(&runtime);
    let mounted = mount.status().is_ok_and(|status| status.success()).then(|| Mounted(runtime.clone()));
    let mut command = shared.command(BOB, &["use:0", "alloc:a:9m", "pause"]);
    command.env("XDG_RUNTIME_DIR", &runtime);
    let mut job = Running::start(command, PATIENCE);
    job.until_ready();
    let machine = shared.node.rig.machine_path();
    let machine = machine.file_name().expect("a name").to_string_lossy().into_owned();
    let mut found = Vec::new();
    let mut walk = vec![(runtime.join("radrm"), "RUNTIME".to_owned())];
    for entry in fs::read_dir(shared.node.rig.path()).expect("a directory").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(scope) = name
            .strip_prefix(&format!("{machine}."))
            .filter(|name| name.starts_with("user-") || name.starts_with("group-"))
        {
            walk.push((entry.path(), format!("SCOPES/{scope}")));
        }
    }
    while let Some((path, shown)) = walk.pop() {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        found.push((shown.clone(), meta.mode() & 0o7777));
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            walk.push((entry.path(), format!("{shown}/{}", entry.file_name().to_string_lossy())));
        }
    }
    let table = modes();
    let mut met = std::collections::BTreeSet::new();
    for (path, mode) in &found {
        let row = table.iter().find(|(form, _)| has_form(path, form));
        let (form, stated) = row.unwrap_or_else(|| panic!("{path} is not in the table: {found:?}"));
        assert_eq!(format!("{mode:04o}"), format!("{stated:04o}"), "{path}");
        met.insert(form.clone());
    }
    job.go_on();
    job.end().ok();
    if mounted.is_some() {
        assert!(met.contains("RUNTIME/segment-*"), "{found:?}");
    }
    assert!(met.contains("SCOPES/group-*/member-*") && met.contains("SCOPES/*/limits"), "{found:?}");
}

/// Puts another process in the place of a member of a ledger.
fn rename_member(ledger: &Path, member: u32, other: u32) {
    let file = fs::OpenOptions::new().read(true).write(true).open(ledger).expect("a ledger");
    let bytes = fs::read(ledger).expect("a ledger");
    // State, generation and process id are a word; the start time follows.
    let start = Process(member).start().expect("its start").to_ne_bytes();
    let is_entry =
        |at: &usize| bytes[*at..*at + 4] == member.to_ne_bytes() && bytes[*at + 8..*at + 16] == start;
    let found: Vec<usize> = (0..bytes.len() - 16).step_by(8).filter(is_entry).collect();
    let [at] = found[..] else { panic!("the layout has changed: {found:?}") };
    file.write_all_at(&other.to_ne_bytes(), at as u64).expect("written");
    let start = Process(other).start().expect("its start").to_ne_bytes();
    // The address of its stack follows; 0 is one that is not known.
    file.write_all_at(&[start, [0; 8]].concat(), at as u64 + 8).expect("written");
}

#[test]
fn a_process_that_a_ledger_only_names_is_not_shown_as_its_member() {
    let Some(shared) = Shared::new() else { return };
    let (job, member) = shared.start_known(ALICE, &["use:0", "alloc:a:100m", "pause"]);
    let machine = shared.node.rig.machine_path().display().to_string();
    let mut sleep = Command::new("sleep");
    sleep.arg("1000").stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    // One of the forger's own that has joined nothing; then another user's that has joined a ledger of its own.
    let mut own = as_user(sleep, ALICE, GROUP).spawn().expect("sleep");
    let (honest, others) = shared.start_known(BOB, &["use:0", "alloc:a:50m", "pause"]);
    let [group, ..] = &shared.scopes()[..] else { panic!("no scope") };
    let ledger = group.join(format!("member-{ALICE}"));
    let mut forged = member;
    for named in [own.id(), others] {
        rename_member(&ledger, forged, named);
        forged = named;
        let shown = shared.node.quota(&["show", "--json", "--machine", &machine]).ok();
        let page: serde_json::Value = serde_json::from_str(&shown.stdout).expect("JSON");
        let scopes = page["shared"].as_array().expect("scopes");
        let of_group =
            scopes.iter().find(|scope| scope["scope"].as_str().is_some_and(|name| name.starts_with("group")));
        let processes = of_group.expect("the group")["processes"].as_array().expect("processes").clone();
        let pids: Vec<u64> = processes.iter().filter_map(|process| process["pid"].as_u64()).collect();
        assert_eq!(pids, [u64::from(others)], "{page}");
        // The second one is another user's, which the ledger's reader leaves out at once.
        let said = format!("names process {named}, which has not joined it");
        assert_eq!(shown.stderr.contains(&said), named == own.id(), "{shown:?}");
    }
    own.kill().and_then(|()| own.wait().map(drop)).expect("ended");
    finish(job);
    finish(honest);
}
