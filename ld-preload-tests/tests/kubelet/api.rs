//! An API server: claims, one node and slices, over HTTP/1.1. It keeps the rules of the real one that a client can
//! break: names, resource versions, and fields that an older server drops.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
};

use serde_json::{Value, json};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// State of the server.
#[derive(Default)]
pub struct State {
    /// By namespace and name: `default/train`.
    pub claims: BTreeMap<String, Value>,
    /// By name.
    pub slices: BTreeMap<String, Value>,
    /// It knows no consumable capacity.
    pub drops_sharing: bool,
    /// It answers this many requests with status 500.
    pub failures: usize,
    /// Requests: method and path.
    pub log: Vec<String>,
    made: u64,
}

/// A server, as long as the test's process lives.
#[derive(Clone)]
pub struct ApiServer {
    state: Arc<Mutex<State>>,
    /// Its address.
    pub address: String,
}

impl ApiServer {
    /// A server with this node.
    pub fn start(node: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("its address"));
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                thread::spawn(move || answer(stream, node, &state));
            }
        });
        Self { state, address }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test thread fails while it holds this")
    }

    /// Slices in the order of their names.
    pub fn slices(&self) -> Vec<Value> {
        self.state().slices.values().cloned().collect()
    }
}

fn answer(stream: TcpStream, node: &str, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let header = header.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (status, value) = state.lock().ok()?.handle(node, &method, &target, body);
        let text = value.to_string();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            text.len()
        );
        (&stream).write_all((head + &text).as_bytes()).ok()?;
    }
}

fn refused(status: u16, message: &str) -> (u16, Value) {
    (status, json!({ "kind": "Status", "status": "Failure", "code": status, "message": message }))
}

impl State {
    fn handle(&mut self, node: &str, method: &str, target: &str, body: Value) -> (u16, Value) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        self.log.push(format!("{method} {path}"));
        if self.failures > 0 {
            self.failures -= 1;
            return refused(500, "etcd is away");
        }
        let slice = path.strip_prefix(SLICES).map(|rest| rest.trim_start_matches('/').to_owned());
        match (method, slice) {
            ("GET", None) if path == format!("/api/v1/nodes/{node}") => {
                (200, json!({ "metadata": { "name": node, "uid": "node-uid" } }))
            }
            ("GET", None) => {
                let named = path.strip_prefix(CLAIMS).and_then(|rest| rest.split_once("/resourceclaims/"));
                let found =
                    named.and_then(|(namespace, name)| self.claims.get(&format!("{namespace}/{name}")));
                found.map_or_else(|| refused(404, &format!("{path} not found")), |claim| (200, claim.clone()))
            }
            ("GET", Some(_)) => {
                assert!(query.contains("radrm.dev") && query.contains(node), "no selector: {query}");
                (200, json!({ "items": self.slices.values().collect::<Vec<_>>() }))
            }
            ("POST", Some(_)) => {
                self.made += 1;
                let prefix = body["metadata"]["generateName"].as_str().expect("a name to begin with");
                let name = format!("{prefix}{:05}", self.made);
                (201, self.keep(&name, body))
            }
            ("PUT", Some(name)) => {
                let version = self.slices.get(&name).map(|known| &known["metadata"]["resourceVersion"]);
                match version {
                    None => refused(404, "no such slice"),
                    Some(version) if *version != body["metadata"]["resourceVersion"] => {
                        refused(409, "the object has been modified")
                    }
                    Some(_) => (200, self.keep(&name, body)),
                }
            }
            ("DELETE", Some(name)) => match self.slices.remove(&name) {
                Some(slice) => (200, slice),
                None => refused(404, "no such slice"),
            },
            _ => refused(405, "not allowed"),
        }
    }

    fn keep(&mut self, name: &str, mut slice: Value) -> Value {
        self.made += 1;
        slice["metadata"]["name"] = name.into();
        slice["metadata"]["resourceVersion"] = self.made.to_string().into();
        for device in slice["spec"]["devices"].as_array_mut().expect("devices") {
            let label = device["name"].as_str().expect("a name");
            let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(label.len() <= 63 && label.bytes().all(fits), "{label} is no label");
            if self.drops_sharing {
                let device = device.as_object_mut().expect("an object");
                device.remove("allowMultipleAllocations");
                device["capacity"]["memory"].as_object_mut().expect("a capacity").remove("requestPolicy");
            }
        }
        self.slices.insert(name.to_owned(), slice.clone());
        slice
    }
}
