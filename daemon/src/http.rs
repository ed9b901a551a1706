//! `/metrics` over HTTP: one path, no body, one answer a connection.
//!
//! `httparse` reads requests. The bounds are here: clients at once, bytes and headers of a request, and one deadline for
//! a whole request.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use radrm_console::output;

use super::engine::Message;
use super::metrics;

/// Clients at once.
const MAX_CLIENTS: usize = 8;
/// Bytes of a request with its headers.
const MAX_REQUEST: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
/// For a request to arrive, and for its answer to be taken.
const TIMEOUT: Duration = Duration::from_secs(10);
/// An address that is taken for longer than this is reported.
const TAKEN: Duration = Duration::from_secs(2);
const STACK: usize = 256 << 10;

/// Serves `/metrics` on threads of their own.
pub(crate) fn serve(address: SocketAddr, to: Sender<Message>) -> io::Result<()> {
    let busy = Arc::new(AtomicUsize::new(0));
    let accept = move || {
        let listener = bind(address);
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                thread::sleep(Duration::from_millis(50));
                continue;
            };
            if busy.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS {
                busy.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (to, here) = (to.clone(), Arc::clone(&busy));
            let started = thread::Builder::new().name("metrics".into()).stack_size(STACK).spawn(move || {
                let _ = answer(stream, TIMEOUT, &to);
                here.fetch_sub(1, Ordering::Relaxed);
            });
            if started.is_err() {
                busy.fetch_sub(1, Ordering::Relaxed);
            }
        }
    };
    thread::Builder::new().name("metrics".into()).stack_size(STACK).spawn(accept).map(|_| ())
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
                let why = output::reason(&error);
                output::say(super::NAME, &format!("/metrics is not served at {address} for now: {why}"));
            }
            Err(_) => {}
        }
        thread::sleep(if is_reported { TAKEN } else { TAKEN / 20 });
    }
}

/// A stream on which all reading ends at one moment: a byte now and then does not extend it.
struct Until<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(buffer)
    }
}

/// Reads a request with its headers. Returns the status that answers it if it does not ask for `/metrics`.
///
/// # Errors
/// The request does not arrive in time.
fn rejection(stream: &TcpStream, timeout: Duration) -> io::Result<Option<&'static str>> {
    let mut until = Until { stream, deadline: Instant::now() + timeout };
    let (mut request, mut part) = (Vec::new(), [0; 1024]);
    loop {
        let count = until.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        request.extend_from_slice(&part[..count]);
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        match parsed.parse(&request) {
            Ok(httparse::Status::Partial) if request.len() < MAX_REQUEST => {}
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Ok(Some("431 Request Header Fields Too Large"));
            }
            Err(_) => return Ok(Some("400 Bad Request")),
            Ok(httparse::Status::Complete(_)) => {
                let path = parsed.path.and_then(|target| target.split('?').next());
                return Ok(match (parsed.method, path) {
                    (Some("GET"), Some("/metrics")) => None,
                    (_, Some("/metrics")) => Some("405 Method Not Allowed"),
                    _ => Some("404 Not Found"),
                });
            }
        }
    }
}

fn answer(mut stream: TcpStream, timeout: Duration, to: &Sender<Message>) -> io::Result<()> {
    stream.set_write_timeout(Some(timeout))?;
    let (status, kind, body) = if let Some(status) = rejection(&stream, timeout)? {
        (status, "text/plain", "there is only GET /metrics\n".to_owned())
    } else {
        let (reply, figures) = channel();
        let _ = to.send(Message::Metrics(reply));
        match figures.recv() {
            Ok(figures) => ("200 OK", metrics::CONTENT_TYPE, metrics::text(figures)),
            Err(_) => ("503 Service Unavailable", "text/plain", "radrmd is ending\n".to_owned()),
        }
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client that sends this gets.
    fn asked(send: impl FnOnce(TcpStream) + Send + 'static, timeout: Duration) -> io::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = thread::spawn(move || {
            let stream = TcpStream::connect(address).unwrap();
            send(stream.try_clone().unwrap());
            let mut text = String::new();
            let mut stream = stream;
            stream.read_to_string(&mut text).map(|_| text)
        });
        let (to, messages) = channel();
        let engine = thread::spawn(move || {
            while let Ok(Message::Metrics(reply)) = messages.recv() {
                let _ = reply.send(metrics::Figures::default());
            }
        });
        let _ = answer(listener.accept().unwrap().0, timeout, &to);
        drop(to);
        engine.join().unwrap();
        client.join().unwrap()
    }

    #[test]
    fn only_metrics_is_served() {
        let get = |line: &'static str| {
            let send = move |mut stream: TcpStream| stream.write_all(line.as_bytes()).unwrap();
            asked(send, TIMEOUT).unwrap()
        };
        let answer = get("GET /metrics?x HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("# EOF\n"), "{answer}");
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics/x HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("\r\n\0\r\n\r\n", "400"),
            ("GET /metrics\r\n\r\n", "400"),
        ] {
            assert!(get(request).starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}");
        }
    }

    #[test]
    fn a_request_in_pieces_is_one_request() {
        let pieces = |mut stream: TcpStream| {
            for piece in ["GET /met", "rics HTTP/1.1\r\nHo", "st: x\r\n\r", "\n"] {
                stream.write_all(piece.as_bytes()).unwrap();
                thread::sleep(Duration::from_millis(20));
            }
        };
        assert!(asked(pieces, TIMEOUT).unwrap().starts_with("HTTP/1.1 200 OK\r\n"));
    }

    #[test]
    fn a_request_of_many_headers_is_rejected() {
        let many = |mut stream: TcpStream| {
            let headers = "A: b\r\n".repeat(MAX_HEADERS + 1);
            stream.write_all(format!("GET /metrics HTTP/1.1\r\n{headers}\r\n").as_bytes()).unwrap();
        };
        assert!(asked(many, TIMEOUT).unwrap().starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn a_client_that_sends_a_byte_now_and_then_is_dropped() {
        let (dropped, is_dropped) = channel();
        let slow = move |mut stream: TcpStream| {
            // Fewer bytes than a request may have.
            let was_dropped = (0..MAX_REQUEST / 2).any(|_| {
                thread::sleep(Duration::from_millis(5));
                stream.write_all(b"G").is_err()
            });
            dropped.send(was_dropped).unwrap();
        };
        let _ = asked(slow, Duration::from_millis(200));
        assert!(is_dropped.recv().unwrap());
    }

    #[test]
    fn a_request_without_end_is_bounded() {
        let endless = |mut stream: TcpStream| {
            let line = [b'x'; 4096];
            while stream.write_all(&line).is_ok() {}
        };
        // Returns at all: the client does not stop by itself.
        let _ = asked(endless, Duration::from_secs(3600));
    }
}
