//! Administrators who are not root: members of the site's group read what users' jobs print, and other users do not.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::process::{Command, Output, Stdio};

use radrm_preload_tests::node::{Daemon, may};

/// The jobs' user, an administrator, and another user.
const USER: u32 = 65_534;
const ADMINISTRATOR: u32 = 1;
const OTHER: u32 = 2;

/// A node with an administrator who is not root.
fn site(config: &str) -> Option<Daemon> {
    let accounts = [USER, ADMINISTRATOR, OTHER].map(|user| user.to_string());
    if !may(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "true"])
        || !may(&["unshare", "--mount", "true"])
        || !accounts.iter().all(|user| may(&["getent", "passwd", user]))
    {
        return None;
    }
    let before = "cp /etc/group $PLACE/group; echo site-admins:x:54790:$(id -un 1) >> $PLACE/group; \
                  mount --bind $PLACE/group /etc/group";
    Some(Daemon::with(&format!("admin_group = \"site-admins\"\n{config}"), before))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn output(daemon: &Daemon, user: u32, arguments: &[&str]) -> Output {
    daemon.client_of(user, arguments).output().expect("radrm")
}

/// Submits a job of the user.
fn submit(daemon: &Daemon, options: &[&str], script: &str) -> String {
    let words = [&["submit", "--quiet", "--gpus", "0"], options, &["--", "/bin/sh", "-c", script]].concat();
    let done = output(daemon, USER, &words);
    assert!(done.status.success(), "{}{}", text(&done.stderr), daemon.log());
    text(&done.stdout).trim().to_owned()
}

#[test]
fn administrators_who_are_not_root_read_the_output_of_jobs_and_other_users_do_not() {
    // Without privacy other users see numbers and users of jobs, and no more of the output.
    for privacy in ["", "privacy = false\n"] {
        let Some(daemon) = site(privacy) else { return };
        let script = "echo first; while [ ! -e $PLACE/go ]; do sleep 0.05; done; echo last";
        let job = submit(&daemon, &[], script);
        daemon.until("it prints", |daemon| text(&output(daemon, USER, &["logs", &job]).stdout) == "first\n");
        assert_eq!(text(&output(&daemon, ADMINISTRATOR, &["logs", &job]).stdout), "first\n");
        let noted = format!("the output of job {job} of ");
        assert_eq!(daemon.log().matches(&noted).count(), 1, "the user's own reading is not noted");
        for words in [&["logs", &job][..], &["logs", "--error", &job]] {
            let done = output(&daemon, OTHER, words);
            let why = text(&done.stderr);
            assert_eq!((done.status.code(), text(&done.stdout)), (Some(1), String::new()), "{why}");
            assert!(why.contains(&format!("there is no job {job}")), "{why}");
        }
        let mut follows: Command = daemon.client_of(ADMINISTRATOR, &["logs", "--follow", &job]);
        let follows = follows.stdout(Stdio::piped()).spawn().expect("radrm");
        fs::write(daemon.path("go"), "").expect("file");
        let done = follows.wait_with_output().expect("radrm");
        assert!(done.status.success());
        assert_eq!(text(&done.stdout), "first\nlast\n", "until the job ends");
    }
}

#[test]
fn what_a_user_puts_in_the_place_of_an_output_opens_nothing_else_to_administrators() {
    let Some(daemon) = site("") else { return };
    let (secret, at) = (daemon.path("secret"), daemon.mark("output"));
    fs::write(&secret, "a secret of root").expect("file");
    let job = submit(&daemon, &["-o", &at.display().to_string()], "echo text");
    let number = job.parse().expect("number");
    daemon.end(number);
    let read = |user: Option<u32>| {
        let words = ["logs", &job];
        user.map_or_else(|| daemon.output(&words), |user| output(&daemon, user, &words))
    };
    assert_eq!(text(&read(Some(ADMINISTRATOR)).stdout), "text\n");
    assert_eq!(text(&read(None).stdout), "text\n");
    fs::remove_file(&at).expect("file");
    let gone = text(&read(Some(ADMINISTRATOR)).stderr);
    assert!(gone.contains("has written nothing"), "{gone}");
    let fifo = daemon.path("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
    assert!(made.success());
    let refused = |user, part: &str| {
        let done = read(user);
        let why = text(&done.stderr);
        assert_eq!((done.status.code(), text(&done.stdout)), (Some(1), String::new()), "{why}");
        assert!(why.contains(part) && why.lines().count() == 1, "{why}");
    };
    let link = "a link is on the way to it";
    for file in [secret.display().to_string(), fifo.display().to_string(), "/dev/zero".to_owned()] {
        symlink(&file, &at).expect("link");
        refused(Some(ADMINISTRATOR), link);
        refused(None, "it belongs to another user");
        fs::remove_file(&at).expect("link");
    }
    // An administrator who can write in the folder may have put the link there.
    let key = daemon.mark("key");
    fs::write(&key, "a secret of the user").expect("file");
    chown(&key, Some(USER), None).expect("owner");
    symlink(&key, &at).expect("link");
    refused(Some(ADMINISTRATOR), link);
    assert_eq!(text(&read(None).stdout), "a secret of the user", "root reads it in any case");
}
