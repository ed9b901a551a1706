//! Requests over a socket: who gets what, and what does not end the server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use radrm_preload_tests::node::as_user;
use serde_json::Value;

use super::made::{EVIL, Place};
use super::{Served, ended};

/// Status line and headers, and the body.
fn raw(port: u16, request: &[u8]) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    // The server may answer, and leave, before it has read all.
    let _ = stream.write_all(request);
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.split_once("\r\n\r\n").map_or((text.clone(), String::new()), |(a, b)| (a.to_owned(), b.to_owned()))
}

impl Served {
    fn get(&self, path: &str, headers: &str) -> (String, String) {
        let port = self.port;
        raw(port, format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}\r\n").as_bytes())
    }

    fn known(&self, path: &str) -> (String, String) {
        self.get(path, &format!("Authorization: Bearer {}\r\n", self.token))
    }

    fn json(&self, path: &str) -> Value {
        let (head, body) = self.known(path);
        assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head} {body}");
        serde_json::from_str(&body).expect("JSON")
    }
}

fn column<'a>(runs: &'a Value, key: &str) -> &'a Vec<Value> {
    let columns = runs["columns"].as_array().expect("columns");
    let at = columns.iter().position(|column| column["key"] == key).unwrap_or_else(|| panic!("no {key}"));
    runs["values"][at].as_array().expect("values")
}

#[test]
fn runs_curves_and_pages_are_answered() {
    let place = Place::new(30, 5);
    let served = Served::start(&place);
    let (head, page) = served.get("/", "");
    assert!(head.contains("\r\nContent-Security-Policy: default-src 'none'; script-src 'self';"), "{head}");
    assert!(page.contains("<script src=\"/script.js\">") && !page.contains(&served.token));
    let runs = served.json("/api/runs");
    assert_eq!((column(&runs, "run").len(), column(&runs, "run_time").len()), (30, 30));
    assert!(column(&runs, "command").iter().any(|text| text.as_str().unwrap().contains(EVIL)));
    assert_eq!(column(&runs, "--lr").iter().filter(|value| *value == "0.1").count(), 10);
    assert_eq!(runs["matrices"][0]["cells"][1][0], 2.0, "resnet launches half as fast beside bert");
    let newest = column(&runs, "run")[0].as_i64().expect("a number");
    let series = served.json(&format!("/api/series/{newest}"));
    let curves = series["curves"].as_array().expect("curves");
    let shape: Vec<_> =
        curves.iter().map(|of| (of["key"].as_str().unwrap(), of["t"].as_array().unwrap().len())).collect();
    assert_eq!(shape.iter().map(|of| of.0).collect::<Vec<_>>(), ["memory", "sm_activity", "steps", "power"]);
    assert!(shape.iter().all(|of| of.1 > 0), "{shape:?}");
    let steps: Vec<f64> = curves[2]["v"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    assert!(steps.iter().all(|rate| (rate - 10.0).abs() < 0.01), "{steps:?}");
    let (head, page) = served.known(&format!("/api/page/{newest}"));
    assert!(head.contains("text/html") && page.contains("<h1><code>python3 train.py</code></h1>"), "{head}");
    // The run before those with profiles has lost its own, and the first has none.
    let (head, why) = served.known(&format!("/api/series/{}", newest - 5));
    assert!(
        head.starts_with("HTTP/1.1 500 ") && why.ends_with("24.radrm: No such file or directory\n"),
        "{why}"
    );
    let (head, why) = served.known("/api/page/1");
    assert!(head.starts_with("HTTP/1.1 404 ") && why == "this run has no profile\n", "{head} {why}");
}

#[test]
fn only_the_token_at_the_right_address_gives_runs() {
    let place = Place::new(6, 2);
    let served = Served::start(&place);
    let (port, token) = (served.port, &served.token);
    let wrong = format!("Authorization: Bearer {}\r\n", "a".repeat(token.len()));
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let own = format!("Host: 127.0.0.1:{port}\r\n");
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\n");
    let api = get("/api/runs");
    for (request, status) in [
        (format!("{api}{own}"), "401"),
        (format!("{api}{own}{wrong}"), "401"),
        (format!("{api}{own}Authorization: {token}\r\n"), "401"),
        (format!("{api}{own}Cookie: token={token}\r\n"), "401"),
        (format!("{}{own}", get(&format!("/api/runs?{token}"))), "401"),
        (format!("{api}{bearer}"), "421"),
        (format!("{api}Host: rebound.example:{port}\r\n{bearer}"), "421"),
        (format!("{api}Host: 127.0.0.1\r\n{bearer}"), "421"),
        (format!("{api}{own}{own}{bearer}"), "421"),
        (format!("{api}{own}{bearer}Origin: http://rebound.example\r\n"), "403"),
        (format!("{api}{own}{bearer}Origin: null\r\n"), "403"),
        (format!("POST /api/runs HTTP/1.1\r\n{own}{bearer}Content-Length: 0\r\n"), "405"),
        (format!("{}{own}{bearer}", get("/api/page/../../../etc/passwd")), "404"),
        (format!("{}{own}{bearer}", get("/api/page/%2e%2e%2fetc%2fpasswd")), "404"),
        (format!("{}{own}{bearer}", get(&format!("/api/page/{}", place.profile(5).display()))), "404"),
        (format!("{}{own}{bearer}", get("/api/page/-1")), "404"),
        (format!("{}{own}{bearer}", get("/api/page/99999999999999999999")), "404"),
        (format!("{}{own}{bearer}", get("/../dataset.db")), "404"),
        (format!("{}{own}{bearer}", get("/dataset.db")), "404"),
        (format!("{api}{own}{bearer}"), "200"),
    ] {
        let (head, body) = raw(port, format!("{request}\r\n").as_bytes());
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {head}");
        assert!(status == "200" || (body.lines().count() == 1 && !body.contains("train.py")), "{body}");
    }
}

#[test]
fn wrong_and_slow_requests_end_one_connection_only() {
    let place = Place::new(6, 2);
    let served = Served::start(&place);
    let port = served.port;
    let idle: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let long = [b"GET / HTTP/1.1\r\nA: ".as_slice(), &[b'x'; 40_000]].concat();
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100));
    for request in [
        b"\0\xff\xfe\r\n\r\n".as_slice(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/1.1\r\nno header\r\n\r\n",
        b"GET\r\n\r\n",
        &long,
        many.as_bytes(),
    ] {
        let (head, _) = raw(port, request);
        assert!(head.is_empty() || head.starts_with("HTTP/1.1 4"), "{head}");
    }
    assert_eq!(column(&served.json("/api/runs"), "run").len(), 6);
    drop(idle);
    // It is reachable from this machine only.
    let any = TcpListener::bind(("0.0.0.0", port));
    assert!(any.is_err() || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let tcp = std::fs::read_to_string("/proc/net/tcp").expect("read");
    let listens = |line: &&str| line.contains(&format!(":{port:04X} 00000000:0000 0A"));
    let listening: Vec<_> = tcp.lines().filter(listens).collect();
    assert!(listening.len() == 1 && listening[0].contains("0100007F:"), "{listening:?}");
}

#[test]
fn another_users_connections_leave_room_for_the_own_user() {
    // SAFETY: a plain system call that cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root can act as several users");
    }
    let place = Place::new(6, 2);
    let served = Served::start(&place);
    let hold = |uid: u32| -> Vec<TcpStream> {
        as_user(uid, || {
            (0..100).filter_map(|_| TcpStream::connect(("127.0.0.1", served.port)).ok()).collect()
        })
    };
    let held: Vec<_> = (20_000..20_003).map(hold).collect();
    assert!(held.iter().all(|of_user| of_user.len() == 100));
    for _ in 0..5 {
        assert_eq!(column(&served.json("/api/runs"), "run").len(), 6);
    }
    drop(held);
}

#[test]
fn a_signal_ends_the_server_with_0() {
    let place = Place::new(3, 1);
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let served = Served::start(&place);
        served.process.signal(signal);
        let ended = served.process.end();
        assert_eq!((ended.status.code(), ended.status.signal()), (Some(0), None), "{ended:?}");
        assert!(ended.stdout.is_empty() && ended.stderr.is_empty(), "{ended:?}");
    }
}

#[test]
fn what_cannot_be_served_is_one_sentence() {
    let place = Place::new(3, 1);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (words, code, part) in [
        (vec!["--dataset", "none.db"], 1, "none.db"),
        (vec![], 1, "dataset.db"),
        (vec!["--dataset", "dataset.db", "--port", &port], 1, "Address already in use"),
        (vec!["--dataset", "dataset.db", "none.toml"], 1, "none.toml"),
        (vec!["--port", "65536"], 2, "--port"),
        (vec!["--bogus"], 2, "--bogus"),
    ] {
        let ended = ended(place.path(), &words);
        assert_eq!(ended.status.code(), Some(code), "{words:?}: {ended:?}");
        assert!(ended.stderr.lines().count() == 1 && ended.stderr.contains(part), "{words:?}: {ended:?}");
        assert!(ended.stdout.is_empty(), "{ended:?}");
    }
}
