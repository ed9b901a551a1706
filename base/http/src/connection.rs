//! Connections: how long and how large each may be, and how many there are at once.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::clients::{self, Room, Until, User};
use crate::{Answer, Request};

const MAX_HEADERS: usize = 64;
/// After a connection could not be accepted, such as for want of descriptors.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Bytes of an answer that are written at a time.
const PART: usize = 64 << 10;

/// Bounds of a server's service to its clients.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Clients at once, by user; further ones are disconnected.
    pub clients: clients::Bounds,
    /// Bytes of a request with its headers.
    pub request: usize,
    /// For a request to arrive, and again for its answer to be taken.
    pub timeout: Duration,
    /// Stack of the thread that answers, bytes.
    pub stack: usize,
}

/// A server that answers each request on a thread of its own.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// Name of its threads.
    pub name: &'static str,
    /// Its bounds.
    pub bounds: Bounds,
    /// Returns true if the reserved room is for this user too.
    pub is_privileged: fn(uid: u32) -> bool,
}

impl Server {
    /// Serves as long as the process lives.
    pub fn serve<F>(&self, listener: &TcpListener, answer: F)
    where
        F: Fn(&Request) -> Answer + Clone + Send + 'static,
    {
        let room = Room::new(self.bounds.clients);
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                thread::sleep(RETRY_INTERVAL);
                continue;
            };
            let uid = clients::owner(&stream);
            let user = User { uid, is_privileged: uid.is_some_and(self.is_privileged) };
            // Also counted until it is gone where its thread panics.
            let Ok(client) = room.take(user, 1) else { continue };
            let (server, answer) = (*self, answer.clone());
            // Without a thread the closure is dropped, and with it the connection and its count.
            let _ = thread::Builder::new().name(self.name.into()).stack_size(self.bounds.stack).spawn(
                move || {
                    let _ = server.answer(&stream, user.is_privileged, &answer);
                    drop(client);
                },
            );
        }
    }

    /// Answers the one request of a connection.
    ///
    /// # Errors
    /// The request does not arrive in time, or its answer is not taken in time.
    fn answer(
        &self,
        stream: &TcpStream,
        is_privileged: bool,
        answer: &impl Fn(&Request) -> Answer,
    ) -> io::Result<()> {
        let answer = match self.request(stream)? {
            Ok(request) => answer(&Request { is_privileged, ..request }),
            Err(status) => Answer::text(status, "this is not a request that is answered here"),
        };
        let mut until = Until::new(stream, self.bounds.timeout)?;
        until.write_all(answer.head().as_bytes())?;
        answer.body.chunks(PART).try_for_each(|part| until.write_all(part))?;
        stream.shutdown(Shutdown::Write)
    }

    /// Reads a request with its headers, or the status that answers what is none.
    fn request(&self, stream: &TcpStream) -> io::Result<Result<Request, &'static str>> {
        let mut until = Until::new(stream, self.bounds.timeout)?;
        let (mut request, mut part) = (Vec::new(), [0; 1024]);
        loop {
            let count = until.read(&mut part)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            request.extend_from_slice(part.get(..count).unwrap_or_default());
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut parsed = httparse::Request::new(&mut headers);
            match parsed.parse(&request) {
                Ok(httparse::Status::Partial) if request.len() < self.bounds.request => {}
                Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                    return Ok(Err("431 Request Header Fields Too Large"));
                }
                Err(_) => return Ok(Err("400 Bad Request")),
                Ok(httparse::Status::Complete(_)) => {
                    let headers = parsed.headers.iter();
                    return Ok(Ok(Request {
                        method: parsed.method.unwrap_or_default().to_owned(),
                        target: parsed.path.unwrap_or_default().to_owned(),
                        is_privileged: false,
                        headers: headers.map(|of| (of.name.to_owned(), of.value.to_vec())).collect(),
                    }));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        clients: clients::Bounds { all: 8, of_user: 8, reserved: 0 },
        request: 16 << 10,
        timeout: Duration::from_secs(10),
        stack: 256 << 10,
    };

    fn server(bounds: Bounds) -> Server {
        Server { name: "test", bounds, is_privileged: |_| false }
    }

    fn echo(request: &Request) -> Answer {
        Answer::text("200 OK", &format!("{} {}", request.method, request.target))
    }

    /// Answer to a client that sends this.
    fn asked(send: impl FnOnce(TcpStream) + Send + 'static, timeout: Duration) -> io::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            send(stream.try_clone().unwrap());
            let mut text = String::new();
            stream.read_to_string(&mut text).map(|_| text)
        });
        let server = server(Bounds { timeout, ..BOUNDS });
        let stream = listener.accept().unwrap().0;
        let _ = server.answer(&stream, false, &echo);
        drop(stream);
        client.join().unwrap()
    }

    #[test]
    fn what_is_no_request_gets_a_status() {
        let get = |line: &'static str| {
            let send = move |mut stream: TcpStream| stream.write_all(line.as_bytes()).unwrap();
            asked(send, BOUNDS.timeout).unwrap()
        };
        let answer = get("GET /a?x HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nGET /a?x\n"),
            "{answer}"
        );
        for request in
            ["\r\n\0\r\n\r\n", "GET /metrics\r\n\r\n", "GET / HTTP/9\r\n\r\n", "\x16\x03\x01\x02\r\n"]
        {
            assert!(get(request).starts_with("HTTP/1.1 400 "), "{request:?}");
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
        assert!(asked(pieces, BOUNDS.timeout).unwrap().starts_with("HTTP/1.1 200 OK\r\n"));
    }

    #[test]
    fn a_request_of_many_headers_is_rejected() {
        let many = |mut stream: TcpStream| {
            let headers = "A: b\r\n".repeat(MAX_HEADERS + 1);
            stream.write_all(format!("GET /metrics HTTP/1.1\r\n{headers}\r\n").as_bytes()).unwrap();
        };
        assert!(asked(many, BOUNDS.timeout).unwrap().starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn a_client_that_sends_a_byte_now_and_then_is_dropped() {
        let (dropped, is_dropped) = channel();
        let slow = move |mut stream: TcpStream| {
            // Fewer bytes than a request may have.
            let was_dropped = (0..BOUNDS.request / 2).any(|_| {
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

    #[test]
    fn an_answer_that_panics_and_clients_too_many_end_connections_only() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let clients = clients::Bounds { all: 4, of_user: 2, reserved: 0 };
        let server = server(Bounds { clients, ..BOUNDS });
        thread::spawn(move || {
            server.serve(&listener, |request| match request.path() {
                "/panic" => std::panic::resume_unwind(Box::new("meant")),
                _ => echo(request),
            });
        });
        let get = |path: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            let _ = write!(stream, "GET {path} HTTP/1.1\r\n\r\n");
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text);
            text
        };
        // More often than there are clients at once: each is counted until it is gone, and no longer.
        for _ in 0..5 {
            assert_eq!(get("/panic"), "");
        }
        let full = (0..400).any(|_| {
            // New ones each time: their time to ask something runs out.
            let _idle = [TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap()];
            thread::sleep(Duration::from_millis(10));
            get("/a").is_empty()
        });
        assert!(full, "two clients are all that there may be");
        let served = (0..400).any(|_| {
            thread::sleep(Duration::from_millis(10));
            get("/a").ends_with("GET /a\n")
        });
        assert!(served);
    }
}
