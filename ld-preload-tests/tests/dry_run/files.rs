//! A dry run changes nothing that the user owns: no file, no link, no mode, whatever writes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use radrm_preload_tests::child::{self, Ended};
use radrm_preload_tests::{artifacts, programs};
use tempfile::TempDir;

use super::harness::{PATIENCE, plain_dry_run, python};

/// An ordinary user of every system.
const USER: u32 = 65534;

/// Changes to files: each line is a script for a shell that runs in the folder and fails if it could not do its
/// work. `$W` is `programs/writes.c`.
const SCRIPTS: [&str; 40] = [
    "echo new > f001 && test $(cat f001) = new",
    "echo more >> f002 && test $(tail -n 1 f002) = more",
    ": > f003 && test ! -s f003",
    "rm f004 && test ! -e f004",
    "mv f005 g005 && test -e g005 && test ! -e f005",
    "mv f006 f007 && test $(cat f007) = 006",
    "chmod 600 f008 && test $(stat -c %a f008) = 600",
    "ln -sfn /nowhere to_f100 && test $(readlink to_f100) = /nowhere",
    "rm -rf sub && test ! -e sub",
    "cp f009 f010 && test $(cat f010) = 009",
    "sed -i s/0/x/ f011 && test $(cat f011) = x11",
    "touch -d 2001-01-01 f012 && test $(stat -c %Y f012) -lt 1000000000",
    "head -c 4 /dev/zero | dd of=f013 conv=notrunc 2> /dev/null",
    "truncate -s 1M f014 && test $(stat -c %s f014) = 1048576",
    "echo x > hard && test $(cat hard) = x",
    "mkdir new && echo x > new/a && test -e new/a",
    "tar cf f015 f016 && tar tf f015 > /dev/null",
    "find . -name 'f02?' -delete && test ! -e f021",
    "echo through > to_f101 && test $(cat f101) = through",
    "rm -rf tree && mkdir tree && test -z \"$(ls tree)\"",
    "python3 -c \"open('f040', 'w').write('x')\" && test $(cat f040) = x",
    "python3 -c \"open('f041', 'a').write('x')\"",
    "python3 -c \"import os; os.truncate('f042', 0)\" && test ! -s f042",
    "python3 -c \"import os; os.replace('f043', 'f044')\" && test $(cat f044) = 043",
    "python3 -c \"import shutil; shutil.rmtree('deep')\" && test ! -e deep",
    "python3 -c \"import os; os.chmod('f045', 0o400)\"",
    "python3 -c \"import sqlite3; d = sqlite3.connect('results.db'); d.execute('insert into r values (7)'); d.commit()\"",
    "python3 -c \"import sqlite3; d = sqlite3.connect('other.db'); d.execute('drop table r'); d.commit()\"",
    "python3 -c \"import os; os.pwrite(os.open('f046', os.O_RDWR), b'zz', 0)\" && test $(head -c 2 f046) = zz",
    "python3 -c \"import os, tempfile as t; f = t.NamedTemporaryFile(dir='.', delete=False); os.replace(f.name, 'f047')\"",
    "python3 -c \"import multiprocessing as m, pathlib as p; q = m.get_context('fork').Process(target=p.Path('f048').write_text, \
     args=('x',)); q.start(); q.join()\" && test $(cat f048) = x",
    "python3 -c \"import subprocess; subprocess.run(['sh', '-c', 'rm f049; echo > f050'], check=True)\" && test ! -e f049",
    "$W truncate-on-open f060",
    "$W ftruncate f061",
    "$W map f062 && test $(head -c 4 f062) = mmap",
    "$W exchange f063 f064 && test $(cat f063) = 064",
    "$W fchmod f065 && $W punch f066",
    "$W link f067 linked && test -e linked",
    "$W fifo pipe && test -p pipe",
    "$W send f068 f069",
];

/// A folder with 1,000 files, databases, links of both kinds, folders, and modes.
fn folder(owner: Option<u32>) -> TempDir {
    let folder = tempfile::Builder::new().prefix("radrm-owned-").tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    for number in 0..980 {
        let file = at(&format!("f{number:03}"));
        fs::write(&file, format!("{number:03}\n")).unwrap();
        if number % 10 == 3 {
            fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        }
    }
    for name in ["sub", "tree", "deep", "deep/deeper"] {
        fs::create_dir(at(name)).unwrap();
        (0..5).for_each(|number| fs::write(at(name).join(number.to_string()), name).unwrap());
    }
    fs::hard_link(at("f102"), at("hard")).unwrap();
    for number in [100, 101] {
        symlink(format!("f{number}"), at(&format!("to_f{number}"))).unwrap();
    }
    symlink("nowhere", at("broken")).unwrap();
    for name in ["results.db", "other.db"] {
        let script = "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute('create table r (x)'); d.commit()";
        let made = Command::new("python3").args(["-c", script]).arg(at(name)).status().unwrap();
        assert!(made.success());
    }
    if let Some(owner) = owner {
        for entry in walk(folder.path()) {
            std::os::unix::fs::lchown(&entry, Some(owner), Some(owner)).unwrap();
        }
        chown(folder.path(), Some(owner), Some(owner)).unwrap();
    }
    folder
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    // What goes while it is read is not there any more.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        all.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.extend(walk(&entry.path()));
        }
    }
    all
}

/// All that can be seen of a folder: by path, what it is, mode, owner, links, time of its last change, content.
fn state(folder: &Path) -> BTreeMap<String, String> {
    let one = |path: &Path| {
        let meta = fs::symlink_metadata(path).unwrap();
        let content = match (meta.is_symlink(), meta.is_file()) {
            (true, _) => fs::read_link(path).unwrap().into_os_string().into_encoded_bytes(),
            (_, true) => fs::read(path).unwrap(),
            _ => Vec::new(),
        };
        let numbers = [meta.mode(), meta.uid(), meta.gid()].map(|number| format!("{number:o}")).join(" ");
        let times = (meta.mtime(), meta.mtime_nsec(), meta.ino(), meta.nlink());
        format!("{numbers} {times:?} {}", String::from_utf8_lossy(&content))
    };
    let all = walk(folder).into_iter().chain([folder.to_owned()]);
    all.map(|path| (path.display().to_string(), one(&path))).collect()
}

fn is_root() -> bool {
    // SAFETY: always works.
    unsafe { libc::geteuid() == 0 }
}

/// A dry run in a folder, by a user of its own if that is named; what is temporary has a folder too, which is returned.
fn run(
    folder: &Path,
    user: Option<u32>,
    before: &[&str],
    options: &[&str],
    program: &[&str],
) -> (Ended, TempDir) {
    for library in [
        "libradrm.so",
        "libradrm_emulated_cuda.so",
        "libradrm_emulated_nvml.so",
        "libradrm_emulated_toolkit.so",
    ] {
        artifacts::file(library);
    }
    let temporary = tempfile::Builder::new().prefix("radrm-files-").tempdir().expect("folder");
    let launcher = artifacts::file("radrm-run").display().to_string();
    let words = before.iter().copied().chain([launcher.as_str()]);
    let words: Vec<&str> =
        words.chain(["--dry-run", "--no-profile", "--no-dataset"]).chain(options.iter().copied()).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg("--").args(program).current_dir(folder);
    command.env("TMPDIR", temporary.path()).env("XDG_CACHE_HOME", temporary.path().join("cache"));
    command.env("HOME", temporary.path()).env_remove("XDG_RUNTIME_DIR");
    if let Some(user) = user {
        chown(temporary.path(), Some(user), Some(user)).unwrap();
        command.uid(user).gid(user);
    }
    (child::run(command, PATIENCE), temporary)
}

fn all_scripts(skip_failures: bool) -> String {
    let writes = programs::compile("writes.c", &[]);
    // Compiled for its owner alone, and an ordinary user runs it too.
    fs::set_permissions(&writes, fs::Permissions::from_mode(0o755)).unwrap();
    let one = |(number, script): (usize, &&str)| format!("( {script} ) || echo failed {number}");
    let each: Vec<String> = SCRIPTS.iter().enumerate().map(one).collect();
    let end = if skip_failures { "exec 2> /dev/null" } else { "" };
    format!("W={}\n{end}\n{}\n", writes.display(), each.join("\n"))
}

/// Runs all scripts in one dry run; what a shell said of those that failed.
#[track_caller]
fn all_is_as_before(user: Option<u32>, before: &[&str]) -> (Ended, Vec<String>) {
    let folder = folder(user);
    let earlier = state(folder.path());
    assert!(earlier.len() > 1000, "{}", earlier.len());
    let script = all_scripts(!before.is_empty());
    let (ended, temporary) = run(folder.path(), user, before, &[], &["sh", "-c", &script]);
    let failed = ended.stdout.lines().filter(|line| line.starts_with("failed ")).map(str::to_owned).collect();
    let later = state(folder.path());
    let changed: Vec<_> = later.iter().filter(|(path, state)| earlier.get(*path) != Some(state)).collect();
    let gone: Vec<_> = earlier.keys().filter(|path| !later.contains_key(*path)).collect();
    assert!(changed.is_empty() && gone.is_empty(), "{changed:?} {gone:?}");
    let left: Vec<_> = walk(temporary.path())
        .into_iter()
        .filter(|path| !path.starts_with(temporary.path().join("cache")))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    (ended, failed)
}

#[test]
fn forty_scripts_change_nothing_in_a_layer() {
    let (ended, failed) = all_is_as_before(None, &[]);
    let ended = ended.ok();
    assert_eq!(failed, [""; 0], "{}", ended.stderr);
    assert!(ended.stderr.contains(", none kept"), "{}", ended.stderr);
}

#[test]
fn forty_scripts_of_an_ordinary_user_change_nothing() {
    if !is_root() {
        return;
    }
    let (ended, failed) = all_is_as_before(Some(USER), &[]);
    let ended = ended.ok();
    assert_eq!(failed, [""; 0], "{}", ended.stderr);
    assert!(ended.stderr.contains(", none kept"), "{}", ended.stderr);
}

#[test]
fn files_are_protected_where_there_are_no_namespaces() {
    let refuses = programs::compile("refuses.c", &[]).display().to_string();
    let (ended, failed) = all_is_as_before(None, &[&refuses, "namespaces"]);
    assert!(failed.len() > 30, "writes are refused: {failed:?}");
    assert!(ended.ok().stderr.contains("refused by Landlock"));
}

#[test]
fn a_dry_run_that_cannot_protect_files_does_not_start() {
    let refuses = programs::compile("refuses.c", &[]).display().to_string();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    let program = ["sh", "-c", "echo x > file"];
    let (ended, _) = run(place.path(), None, &[&refuses, "all"], &[], &program);
    assert_eq!(ended.status.code(), Some(125), "{}", ended.stderr);
    assert!(ended.stderr.contains("--write-files") && ended.stderr.lines().count() == 1, "{}", ended.stderr);
    assert!(!file.exists());
    let (ended, _) = run(place.path(), None, &[&refuses, "all"], &["--find-batch", "n=1..2"], &program);
    assert_eq!(ended.status.code(), Some(125), "{}", ended.stderr);
    run(place.path(), None, &[&refuses, "all"], &["--write-files"], &program).0.ok();
    assert_eq!(fs::read_to_string(&file).unwrap(), "x\n");
}

#[test]
fn files_are_kept_in_the_folder_that_was_named() {
    let place = tempfile::tempdir().unwrap();
    let kept = place.path().join("kept");
    let script = "echo x > a && mkdir b && ln -s a b/link && truncate -s 1G b/large && chmod 700 a";
    let options = ["--keep-files".to_owned(), kept.display().to_string()];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let ended = run(place.path(), None, &[], &options, &["sh", "-c", script]).0.ok();
    assert!(ended.stderr.contains("wrote 2 files (1.00 GiB), kept in "), "{}", ended.stderr);
    assert!(!place.path().join("a").exists());
    let of = kept.join(place.path().strip_prefix("/").unwrap());
    assert_eq!(fs::read_to_string(of.join("a")).unwrap(), "x\n");
    assert_eq!(fs::metadata(of.join("a")).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::read_link(of.join("b/link")).unwrap(), Path::new("a"));
    let large = fs::metadata(of.join("b/large")).unwrap();
    assert!(large.len() == 1 << 30 && large.blocks() < 1000, "holes stay holes: {large:?}");
    let again = run(place.path(), None, &[], &options, &["true"]).0;
    assert_eq!(again.status.code(), Some(125), "{}", again.stderr);
}

#[test]
fn folders_that_are_named_are_written() {
    let place = tempfile::tempdir().unwrap();
    // It is made: a cache is not there before the first download.
    let real = place.path().join("real");
    let option = format!("--write-files={}", real.display());
    let ended = run(place.path(), None, &[], &[&option], &["sh", "-c", "echo x > real/a; echo y > b"]).0.ok();
    assert!(ended.stderr.contains("wrote 1 file (2 B), none kept"), "{}", ended.stderr);
    assert!(real.join("a").exists() && !place.path().join("b").exists());
}

#[test]
fn a_program_in_a_layer_is_where_and_who_it_was() {
    let place = tempfile::tempdir().unwrap();
    let user = is_root().then_some(USER);
    for user in [None, user] {
        let script = "id -u; id -g; pwd; kill -0 $PPID && echo sees; test -w /dev/null && echo device; cat /proc/self/comm";
        let (ended, _) = run(place.path(), user, &[], &[], &["sh", "-c", script]);
        // SAFETY: these always work.
        let own = unsafe { (libc::geteuid(), libc::getegid()) };
        let (uid, gid) = user.map_or(own, |user| (user, user));
        let expected = format!("{uid}\n{gid}\n{}\nsees\ndevice\ncat\n", place.path().display());
        assert_eq!(ended.ok().stdout, expected);
    }
}

/// Reaches files that lie below the layers: by descriptors that were opened outside of them, and by another process's root.
const BELOW: &str = "(echo bad > /proc/self/fd/3) 2> /dev/null && echo wrote 3
(echo bad > /proc/self/fd/4/f201) 2> /dev/null && echo wrote 4
(rm /proc/self/fd/4/f202) 2> /dev/null && echo removed 4
(echo bad > /proc/$PPID/cwd/f203) 2> /dev/null && echo wrote cwd
(echo bad > /proc/$PPID/root$PWD/f204) 2> /dev/null && echo wrote root
cat <&3 && echo own > /dev/fd/5 && echo new > f201 && mv f201 sub && cat sub/f201";

#[test]
fn what_lies_below_the_layers_is_not_written() {
    let user = is_root().then_some(USER);
    for user in [None, user] {
        let folder = folder(user);
        let earlier = state(folder.path());
        let log = tempfile::NamedTempFile::new().unwrap();
        chown(log.path(), user, user).unwrap();
        let open = format!("exec 3< f200 4< . 5> {}; exec \"$@\"", log.path().display());
        let (ended, _) = run(folder.path(), user, &["sh", "-c", &open, "sh"], &[], &["sh", "-c", BELOW]);
        assert_eq!(ended.ok().stdout, "200\nnew\n");
        assert!(earlier == state(folder.path()));
        assert_eq!(fs::read_to_string(log.path()).unwrap(), "own\n", "an open file stays open for writing");
    }
}

/// Waits until something holds.
#[track_caller]
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(PATIENCE);
    while !holds() {
        assert!(std::time::Instant::now() < end, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A process that outlives the run reads what the program wrote, and the layer goes with it.
#[test]
fn a_process_in_the_background_keeps_the_layer() {
    let place = tempfile::tempdir().unwrap();
    let real = place.path().join("real");
    let option = format!("--write-files={}", real.display());
    let script = "echo early > a; (until test -e real/go; do sleep 0.1; done; echo late > b; cat a b > real/seen) \
        > /dev/null 2>&1 < /dev/null &";
    let (ended, temporary) = run(place.path(), None, &[], &[&option], &["sh", "-c", script]);
    assert!(ended.ok().stderr.contains(" of the job still run"));
    fs::write(real.join("go"), "").unwrap();
    let seen = || fs::read_to_string(real.join("seen")).unwrap_or_default();
    wait_for("it reads both files", || seen() == "early\nlate\n");
    let left =
        || walk(temporary.path()).into_iter().any(|path| !path.starts_with(temporary.path().join("cache")));
    wait_for("the layer goes with the last process", || !left());
    assert!(!place.path().join("a").exists() && !place.path().join("b").exists());
}

/// Existing checkpoints are read, and new ones do not appear; a gigabyte of zeros takes no room.
#[test]
fn checkpoints_of_a_training_do_not_appear() {
    let Some(python) = python() else { return };
    let place = tempfile::tempdir().unwrap();
    let checkpoint = place.path().join("ckpt.pt");
    fs::write(&checkpoint, "my only copy").unwrap();
    let program = format!(
        "import os, torch
os.chdir({:?})
assert open('ckpt.pt').read() == 'my only copy'
m = torch.nn.Linear(16384, 16384).cuda()
m(torch.randn(8, 16384, device='cuda')).sum().backward()
torch.save(m.state_dict(), 'ckpt.pt')
found = os.stat('ckpt.pt')
print(found.st_size >> 20, found.st_blocks >> 11)
print(torch.load('ckpt.pt', map_location='cpu')['weight'].shape)
",
        place.path()
    );
    let run = plain_dry_run(&python, &[], &["-c", &program]).ok();
    assert_eq!(run.ended.stdout.lines().collect::<Vec<_>>(), ["1024 0", "torch.Size([16384, 16384])"]);
    assert_eq!(fs::read_to_string(&checkpoint).unwrap(), "my only copy");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    let remarks = run.report["dry_run"]["remarks"].to_string();
    assert!(remarks.contains("wrote 1 file (1.00 GiB), none kept"), "{remarks}");
    run.leaves_nothing();
}

/// Loads a library that has the name of PyTorch's, beside the package whose version is asked for. Libraries are listed from the
/// first call of the driver on, and at no time after the end.
const LOADS: &str = "import ctypes, sys, time
ctypes.CDLL(sys.argv[1])
ctypes.CDLL('libcuda.so.1').cuInit(0)
time.sleep(2)
";

/// A dry run of `LOADS` finds the version beside a library below a bind mount, after a script of root's in the same
/// namespace, whose first word is an empty folder.
#[track_caller]
fn version_is_found_after(script: &str) {
    let place = TempDir::new().unwrap();
    let [own, mounted, empty] = ["own", "mounted", "empty"].map(|name| place.path().join(name));
    let packages = own.join("venv/site-packages");
    fs::create_dir_all(packages.join("torch-2.9.1.dist-info")).unwrap();
    fs::create_dir_all(packages.join("torch/lib")).unwrap();
    [&mounted, &empty].iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let library = packages.join("torch/lib/libtorch_cpu.so");
    fs::copy(artifacts::file("libradrm_instant_cuda.so"), &library).unwrap();
    let mount = format!("mount --bind \"$1\" \"$2\" && shift 2 && {script} && shift && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &mount, "sh"]).arg(&own).arg(&mounted).arg(&empty);
    command.arg(artifacts::file("radrm-run"));
    command.args(["--dry-run", "--no-profile", "--no-dataset", "--quiet", "--json=-", "--"]);
    command.args(["python3", "-c", LOADS]).arg(mounted.join(library.strip_prefix(&own).unwrap()));
    let ended = child::run(command, PATIENCE);
    if ended.stderr.contains("unshare:") || ended.stderr.contains("mount:") {
        eprintln!("skipped: no mount namespace can be made here: {}", ended.stderr);
        return;
    }
    assert!(ended.stdout.contains("2.9.1"), "{} {}", ended.stdout, ended.stderr);
}

#[test]
fn versions_are_found_below_a_mount_that_is_not_the_root() {
    version_is_found_after("true");
}

#[test]
fn versions_are_found_where_namespaces_are_mounted() {
    // As `ip netns` and Docker keep namespaces; the second one cannot be bound in the copy of all mounts.
    version_is_found_after("touch \"$1/net\" && mount --bind /proc/self/ns/net \"$1/net\"");
    version_is_found_after("touch \"$1/mnt\" && unshare --mount=\"$1/mnt\" true");
}

/// Prints what three usual questions to `nvidia-smi` are answered.
const ASKS: &str = "nvidia-smi -L && nvidia-smi --query-gpu=index,memory.total,driver_version,fan.speed \
                    --format=csv,noheader,nounits -i 1 && nvidia-smi --query-gpu=name,memory.free --format=csv";

#[test]
fn nvidia_smi_shows_the_emulated_machine() {
    let mut command = Command::new(artifacts::file("radrm-run"));
    command.args(["--dry-run", "--no-profile", "--no-dataset", "--quiet", "--emulate", "2xT4", "--"]);
    command.args(["sh", "-c", ASKS]);
    let ended = child::run(command, PATIENCE).ok();
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].starts_with("GPU 0: Tesla T4 (UUID: GPU-"), "{lines:?}");
    assert!(lines[1].starts_with("GPU 1: Tesla T4 (UUID: GPU-"), "{lines:?}");
    let second: Vec<&str> = lines[2].split(", ").collect();
    assert_eq!((second[0], second[3]), ("1", "[N/A]"), "{lines:?}");
    assert!(second[1].parse::<u64>().is_ok_and(|mib| (14_000..17_000).contains(&mib)), "{lines:?}");
    assert_eq!(lines[3], "name, memory.free [MiB]");
    assert!(lines[5].starts_with("Tesla T4, ") && lines[5].ends_with(" MiB"), "{lines:?}");
}
