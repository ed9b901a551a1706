//! Room that one user can take of radrmd: connections, requests, answers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use std::{fs, thread};

use radrm_preload_tests::node::{Daemon, as_user};
use radrm_preload_tests::programs;

const HELLO: &[u8; 8] = b"RADRMD\0\x03";

fn is_root() -> bool {
    // SAFETY: a plain system call that cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Returns true, or says that the test is skipped.
fn can_be_others() -> bool {
    if !is_root() {
        eprintln!("skipped: only root can act as several users");
    }
    is_root()
}

fn frame(text: &[u8]) -> Vec<u8> {
    [&u32::try_from(text.len()).expect("length").to_le_bytes(), text].concat()
}

/// A connection of this user on which `"nodes"` was asked, if it was answered.
fn connection(socket: &Path, uid: u32) -> Option<UnixStream> {
    let mut stream = as_user(uid, || UnixStream::connect(socket)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    stream.write_all(&[&HELLO[..], &frame(b"\"nodes\"")].concat()).ok()?;
    let mut start = [0; 12];
    stream.read_exact(&mut start).ok()?;
    let length = u32::from_le_bytes(start[8..].try_into().expect("4 bytes"));
    let mut answer = vec![0; length as usize];
    stream.read_exact(&mut answer).ok()?;
    answer.starts_with(b"{\"nodes\"").then_some(stream)
}

/// The highest resident memory of the daemon so far, MiB.
fn highest(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("status");
    let line = status.lines().find(|line| line.starts_with("VmHWM")).expect("VmHWM");
    let kib: u64 = line.split_whitespace().nth(1).expect("value").parse().expect("number");
    kib >> 10
}

fn raise_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a structure that lives here.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}

#[test]
fn connections_of_many_users_leave_room_for_root() {
    if !can_be_others() {
        return;
    }
    raise_descriptors();
    let daemon = Daemon::new("");
    let socket = daemon.path("socket");
    let hold =
        |uid: u32| -> Vec<UnixStream> { std::iter::from_fn(|| connection(&socket, uid)).take(200).collect() };
    let held: Vec<_> = (20_000..20_012).map(hold).collect();
    assert!(
        held.iter().all(|of_user| of_user.len() == 96),
        "{:?}",
        held.iter().map(Vec::len).collect::<Vec<_>>()
    );
    assert!(connection(&socket, 20_012).is_none(), "the rest is reserved");
    daemon.ok(&["queue"]);
    drop(held);
    daemon.until("there is room for others again", |_| connection(&socket, 20_012).is_some());
}

#[test]
fn a_refused_connection_names_the_limit() {
    let daemon = Daemon::new("");
    // SAFETY: a plain system call that cannot fail.
    let own = unsafe { libc::geteuid() };
    let connect = || {
        let mut stream = UnixStream::connect(daemon.path("socket")).expect("connects");
        stream.write_all(HELLO).expect("hello");
        stream.read_exact(&mut [0; 8]).expect("hello");
        stream
    };
    let held: Vec<UnixStream> = (0..96).map(|_| connect()).collect();
    let said = daemon.refused(&["queue"]);
    assert!(said.contains("you have 96 connections to radrmd") && said.lines().count() == 1, "{own}: {said}");
    drop(held);
    daemon.until("the user is served again", |daemon| daemon.output(&["queue"]).status.success());
}

#[test]
fn long_requests_of_a_user_take_bounded_memory() {
    let daemon = Daemon::new("");
    let text = [&b"{\"submit\":\""[..], &vec![b'x'; (16 << 20) - 12]].concat();
    let bytes = [&(16_u32 << 20).to_le_bytes()[..], &text].concat();
    let socket = daemon.path("socket");
    let before = highest(&daemon);
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let connect = || UnixStream::connect(&socket).expect("connects");
                // Root has no bound of its own.
                let mut stream = if is_root() { as_user(20_000, connect) } else { connect() };
                stream.set_write_timeout(Some(Duration::from_secs(4))).expect("timeout");
                stream.write_all(HELLO).expect("hello");
                let _ = stream.write_all(&bytes);
                thread::sleep(Duration::from_secs(1));
            });
        }
        thread::sleep(Duration::from_secs(2));
        daemon.ok(&["queue"]);
    });
    // Two requests at a time, each once.
    let after = highest(&daemon);
    assert!(after < before + 48, "{before} MiB before, {after} MiB after");
}

#[test]
fn only_requests_that_need_it_are_long() {
    let daemon = Daemon::new("");
    let ask = |length: u32, text: &[u8]| {
        let mut stream = UnixStream::connect(daemon.path("socket")).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
        stream.write_all(&[&HELLO[..], &length.to_le_bytes(), text].concat()).expect("request");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let spaces = vec![b' '; 64 << 10];
    assert!(ask(16 << 20, &spaces).contains("too long for what it asks"));
    assert!(ask((16 << 20) + 1, b"").contains("too long"));
    let words = [&b"{\"cancel\":{\"jobs\":["[..], &b"\"\",".repeat(600_000), b"\"\"]}}"].concat();
    assert!(ask(u32::try_from(words.len()).expect("length"), &words).contains("too many values"));
}

#[test]
fn slow_readers_of_long_lists_take_bounded_memory() {
    let daemon = Daemon::new("");
    daemon.ok(&["submit", "--quiet", "--hold", "--array", "0-9999", "--gpu-mem", "1GiB", "--", "true"]);
    let before = highest(&daemon);
    let request = frame(br#"{"queue":{"all":true,"ended":100000}}"#).repeat(50);
    let held: Vec<UnixStream> = (0..80)
        .map(|_| {
            let mut stream = UnixStream::connect(daemon.path("socket")).expect("connects");
            stream.write_all(&[&HELLO[..], &request].concat()).expect("request");
            stream
        })
        .collect();
    thread::sleep(Duration::from_secs(3));
    let rows = daemon.ok(&["queue", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&rows).expect("JSON");
    assert_eq!(rows.as_array().map(Vec::len), Some(10_000));
    let after = highest(&daemon);
    assert!(after < before + 100, "{before} MiB before, {after} MiB after");
    drop(held);
}

fn scrape(port: u16, uid: u32) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = as_user(uid, || TcpStream::connect(("127.0.0.1", port))) {
        let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let _ = stream.read_to_string(&mut text);
    }
    text
}

#[test]
fn metrics_are_answered_while_a_user_holds_connections_and_keep_jobs_private() {
    if !can_be_others() {
        return;
    }
    raise_descriptors();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|found| found.local_addr()).expect("port").port();
    let mut daemon = Daemon::prepare("");
    let file = daemon.path("config.toml");
    let text = fs::read_to_string(&file).expect("configuration");
    let text = text.replace("metrics = \"\"", &format!("metrics = \"127.0.0.1:{port}\""));
    fs::write(&file, text).expect("configuration");
    daemon.start();
    daemon.until("/metrics is served", |_| scrape(port, 0).ends_with("# EOF\n"));
    let held: Vec<TcpStream> =
        as_user(20_000, || (0..300).filter_map(|_| TcpStream::connect(("127.0.0.1", port)).ok()).collect());
    assert_eq!(held.len(), 300);
    for uid in [0, 20_001] {
        assert!((0..10).all(|_| scrape(port, uid).ends_with("# EOF\n")), "user {uid}");
    }
    drop(held);
    let steps = programs::compile("steps.c", &[]).display().to_string();
    let job = daemon.submit(&["--gpu-mem", "2GiB"], &[&steps, "use:0", "alloc:a:600m", "sleep:60000"]);
    let series = format!("job=\"{job}\"");
    daemon.until("the job's memory is shown to root", |_| scrape(port, 0).contains(&series));
    let others = scrape(port, 20_001);
    assert!(others.contains("radrm_gpu_memory_used_bytes{") && !others.contains(&series), "{others}");
}
