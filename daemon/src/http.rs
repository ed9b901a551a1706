//! `/metrics` over HTTP: one path.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use radrm_http::{Answer, Bounds, Request, Server, clients};
use radrm_text::output;

use super::message::Message;
use super::metrics;

const SERVER: Server = Server {
    name: "metrics",
    bounds: Bounds {
        clients: clients::Bounds { all: 256, of_user: 32, reserved: 32 },
        request: 16 << 10,
        timeout: Duration::from_secs(5),
        stack: STACK,
    },
    // Prometheus and its agents run as root or by a system account.
    is_privileged: |uid| uid <= LAST_SYSTEM_ACCOUNT || uid == rustix::process::geteuid().as_raw(),
};
/// `SYS_UID_MAX` of shadow-utils' login.defs.
const LAST_SYSTEM_ACCOUNT: u32 = 999;
/// An address that is taken for longer than this is reported.
const TAKEN: Duration = Duration::from_secs(2);
const STACK: usize = 256 << 10;

/// Serves `/metrics` on threads of their own.
pub(crate) fn serve(address: SocketAddr, to: Sender<Message>) -> io::Result<()> {
    let accept = move || SERVER.serve(&bind(address), move |request| answer(request, &to));
    thread::Builder::new().name(SERVER.name.into()).stack_size(STACK).spawn(accept).map(|_| ())
}

/// The process that has the address may give it up: a daemon that was killed, or a child that it was about to start.
fn bind(address: SocketAddr) -> TcpListener {
    let begun = Instant::now();
    let mut is_reported = false;
    loop {
        match TcpListener::bind(address) {
            Ok(listener) => return listener,
            Err(error) if !is_reported && begun.elapsed() > TAKEN => {
                is_reported = true;
                let why = radrm_base::reason(&error);
                output::say(
                    crate::process::NAME,
                    &format!("/metrics is not served at {address} for now: {why}"),
                );
            }
            Err(_) => {}
        }
        thread::sleep(if is_reported { TAKEN } else { TAKEN / 20 });
    }
}

fn answer(request: &Request, to: &Sender<Message>) -> Answer {
    const ONLY: &str = "there is only GET /metrics";
    match (request.method.as_str(), request.path()) {
        ("GET", "/metrics") => {}
        (_, "/metrics") => return Answer::text("405 Method Not Allowed", ONLY),
        _ => return Answer::text("404 Not Found", ONLY),
    }
    let (reply, figures) = channel();
    let _ = to.send(Message::Metrics(reply));
    match figures.recv() {
        Ok(mut figures) => {
            if figures.is_private && !request.is_privileged {
                figures.job_memory = None;
            }
            Answer::new("200 OK", metrics::CONTENT_TYPE, metrics::text(figures))
        }
        Err(_) => Answer::text("503 Service Unavailable", "radrmd is ending"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_jobs_are_for_privileged_users_unless_privacy_is_off() {
        let shows_jobs = |is_privileged: bool, is_private: bool| {
            let (to, messages) = channel();
            let mut request = Request::new("GET", "/metrics");
            request.is_privileged = is_privileged;
            let of_job = metrics::JobMemory { job: 7, user: "ann".into(), ..Default::default() };
            let figures =
                metrics::Figures { job_memory: Some(vec![of_job]), is_private, ..Default::default() };
            let engine = thread::spawn(move || match messages.recv() {
                Ok(Message::Metrics(reply)) => reply.send(figures).unwrap(),
                other => panic!("{other:?}"),
            });
            let shown = String::from_utf8(answer(&request, &to).body).unwrap().contains("user=\"ann\"");
            engine.join().unwrap();
            shown
        };
        assert!(shows_jobs(true, true) && shows_jobs(true, false) && shows_jobs(false, false));
        assert!(!shows_jobs(false, true));
    }

    #[test]
    fn only_metrics_is_served() {
        let (to, messages) = channel();
        let engine = thread::spawn(move || {
            while let Ok(Message::Metrics(reply)) = messages.recv() {
                let _ = reply.send(metrics::Figures::default());
            }
        });
        let get = |method: &str, target: &str| {
            let request = Request::new(method, target);
            let answer = answer(&request, &to);
            (answer.status, String::from_utf8(answer.body).unwrap())
        };
        let (status, body) = get("GET", "/metrics?x");
        assert!(status == "200 OK" && body.ends_with("# EOF\n"), "{status}: {body}");
        for (method, target, status) in
            [("GET", "/", "404"), ("GET", "/metrics/x", "404"), ("POST", "/metrics", "405")]
        {
            assert!(get(method, target).0.starts_with(status), "{method} {target}");
        }
        drop(to);
        engine.join().unwrap();
    }
}
