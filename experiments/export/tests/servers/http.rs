//! A server of HTTP/1.1 whose answers are JSON.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use serde_json::Value;

pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// By their names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// Serves until the test ends, and gives the address.
pub(crate) fn serve(answer: impl Fn(Request) -> (u16, Value) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || while respond(&connection, &*answer).is_some() {});
        }
    });
    address
}

/// Answers one request; `None` at the end of the connection.
fn respond(mut connection: &TcpStream, answer: &dyn Fn(Request) -> (u16, Value)) -> Option<()> {
    let (status, value) = answer(read(connection)?);
    let text = value.to_string();
    write!(connection, "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{text}", text.len()).ok()
}

fn read(connection: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let [method, path]: [String; 2] =
        line.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>().try_into().ok()?;
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers.get("content-length").map_or(Some(0), |length| length.parse().ok())?];
    reader.read_exact(&mut body).ok()?;
    let mut chunked = headers.get("transfer-encoding").is_some_and(|value| value == "chunked");
    while chunked {
        let mut size = String::new();
        reader.read_line(&mut size).ok()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        let mut part = vec![0; size + 2];
        reader.read_exact(&mut part).ok()?;
        body.extend_from_slice(&part[..size]);
        chunked = size > 0;
    }
    Some(Request { method, path, headers, body })
}
