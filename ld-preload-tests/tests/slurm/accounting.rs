//! Limits on the GPU memory of users, with Slurm's own database daemon on a private MariaDB.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use radrm_preload_tests::slurm::{Setup, Slurm};
use tempfile::TempDir;

/// Programs that Slurm's accounting needs besides.
const PROGRAMS: [&str; 3] = ["/usr/sbin/mariadbd", "/usr/bin/mariadb-install-db", "/usr/sbin/slurmdbd"];

/// The database, on a Unix socket.
struct Database {
    place: TempDir,
    server: Child,
}

impl Database {
    /// `None`, said aloud: it is not installed.
    fn start() -> Option<Self> {
        if let Some(missing) = PROGRAMS.into_iter().find(|name| !Path::new(name).is_file()) {
            eprintln!(
                "skipped: {missing} is not there (packages slurmdbd mariadb-server-core mariadb-client-core)"
            );
            return None;
        }
        let place = tempfile::Builder::new().prefix("radrm-db").tempdir_in("/tmp").expect("directory");
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("mode");
        let data = format!("--datadir={}", place.path().join("data").display());
        let log = fs::File::create(place.path().join("log")).expect("log");
        let user = format!("--user={}", user());
        let made = Command::new(PROGRAMS[1])
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                &data,
                &user,
            ])
            .stdout(log.try_clone().expect("log"))
            .stderr(log.try_clone().expect("log"))
            .status()
            .expect("mariadb-install-db");
        assert!(made.success(), "{}", fs::read_to_string(place.path().join("log")).unwrap_or_default());
        let server = Command::new(PROGRAMS[0])
            .args(["--no-defaults", "--skip-networking", "--innodb-flush-log-at-trx-commit=0", &data, &user])
            .arg(format!("--socket={}", place.path().join("socket").display()))
            .arg(format!("--pid-file={}", place.path().join("pid").display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log"))
            .stderr(log)
            .spawn()
            .expect("mariadbd");
        let database = Self { place, server };
        for _ in 0..600 {
            if database.place.path().join("socket").exists() {
                return Some(database);
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("no database: {}", fs::read_to_string(database.place.path().join("log")).unwrap_or_default());
    }

    fn socket(&self) -> String {
        self.place.path().join("socket").display().to_string()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn user() -> String {
    let output = Command::new("id").arg("-un").output().expect("id");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn a_users_limit_on_shards_holds_over_all_jobs() {
    let Some(database) = Database::start() else { return };
    let setup = Setup { nodes: 1, gpus: 2, mib: 4096, script: None, further: "" };
    let Some(slurm) = Slurm::start_accounted(&setup, &database.socket()) else { return };
    let own = user();
    let manage = |words: &[&str]| slurm.said("sacctmgr", &[&["-i", "-Q"], words].concat());
    manage(&["add", "account", "lab"]);
    manage(&["add", "user", &own, "account=lab"]);
    manage(&["modify", "user", &own, "set", "GrpTRES=gres/shard=1500"]);
    slurm.until("the limit is known", || {
        manage(&["-n", "-P", "show", "assoc", "format=user,grptres"]).contains("gres/shard=1500")
    });
    let script = "touch there.$SLURM_JOB_ID; sleep 1000";
    let submit = || slurm.sbatch(&["--account=lab", "--gres=shard:1000"], script);
    let runs = |job: u32| slurm.path(&format!("work/there.{job}")).exists();
    let (first, second) = (submit(), submit());
    slurm.until("one of them runs", || runs(first) || runs(second));
    let (runs_now, waits) = if runs(first) { (first, second) } else { (second, first) };
    slurm.until("the other waits for the user's limit", || {
        slurm.field(waits, "Reason").starts_with("AssocGrpG")
    });
    assert!(!runs(waits), "there is room on the GPUs, and none in the user's limit");
    let small = slurm.sbatch(&["--account=lab", "--gres=shard:500"], script);
    slurm.until("a smaller job runs within the limit", || runs(small));
    let _ = slurm.said("scancel", &[&runs_now.to_string(), &small.to_string()]);
    slurm.until("the waiting one runs when there is room", || runs(waits));
    // What radrmd says of jobs that the controller has forgotten goes to the database.
    let _ = slurm.said("scancel", &[&waits.to_string()]);
    slurm.until_ended(waits);
    let id = format!("JobId={waits}");
    slurm.until("a job's record takes a comment", || {
        manage(&["modify", "job", "where", &id, "set", "AdminComment=radrm: peak 1 GiB"]);
        slurm
            .said("sacct", &["-n", "-P", "-X", "-j", &waits.to_string(), "-o", "AdminComment"])
            .contains("radrm: peak")
    });
}
