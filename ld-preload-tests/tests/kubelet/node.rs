//! A node: emulated GPUs, the plug-in as a process, and a kubelet that talks to it as the real one does.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    task::{Context, Poll},
    thread,
    time::{Duration, Instant},
};

use hyper::http;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use radrm_kubelet::messages::{
    Claim, InfoRequest, NodePrepareResourceResponse, NodePrepareResourcesRequest,
    NodePrepareResourcesResponse, NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse, PLUGIN, PluginInfo, REGISTRATION, RegistrationStatus,
    RegistrationStatusResponse,
};
use radrm_preload_tests::{
    artifacts,
    rig::{PATIENCE, Rig},
};
use serde_json::{Value, json};
use tonic::{Request, Status, body::Body};

use super::api::ApiServer;

/// The node's name.
pub const NODE: &str = "node-1";
pub const MIB: u64 = 1 << 20;

/// A node with the plug-in.
pub struct Node {
    pub rig: Rig,
    pub api: ApiServer,
    options: Vec<String>,
    /// Words before the plug-in's command line.
    before: Vec<String>,
    plugin: Option<Child>,
    said: Arc<Mutex<String>>,
}

impl Node {
    /// One whose plug-in has made its sockets.
    pub fn new(gpus: &str) -> Self {
        Self::with(gpus, &["--gpu-device", "none"])
    }

    pub fn with(gpus: &str, options: &[&str]) -> Self {
        for library in ["libradrm.so", "libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so"] {
            artifacts::file(library);
        }
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let said = Arc::default();
        let (rig, api) = (Rig::emulated(gpus), ApiServer::start(NODE));
        let mut node = Self { rig, api, options, before: Vec::new(), plugin: None, said };
        node.start();
        node
    }

    /// From now on the plug-in is started behind these words.
    pub fn behind(&mut self, before: Vec<String>) {
        self.before = before;
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.rig.path().join(name)
    }

    /// Starts the plug-in, which is not running, and waits for its sockets.
    pub fn start(&mut self) {
        // What a killed plug-in has left is not a sign of a new one.
        let _ = fs::remove_file(self.registration());
        self.start_only();
        self.until("it has made its sockets", |node| {
            fs::symlink_metadata(node.registration()).is_ok_and(|found| found.file_type().is_socket())
        });
    }

    /// The same, or until it has ended with 1; an error has what it said then.
    #[track_caller]
    pub fn tries_to_start(&mut self) -> Result<(), String> {
        let _ = fs::remove_file(self.registration());
        let before = self.said().len();
        self.start_only();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(PATIENCE) {
            let is_there = fs::symlink_metadata(self.registration()).is_ok();
            let child = self.plugin.as_mut().expect("a running plug-in");
            match child.try_wait().expect("its end") {
                Some(status) => {
                    self.plugin = None;
                    assert_eq!(status.code(), Some(1), "{}", self.said());
                    // The thread that reads its output may be behind.
                    self.until("it has said why", |node| node.said()[before..].ends_with('\n'));
                    return Err(self.said()[before..].to_owned());
                }
                None if is_there => return Ok(()),
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
        panic!("it neither serves nor ends\n{}", self.said());
    }

    fn start_only(&mut self) {
        let program = artifacts::file("radrm-kubelet-plugin");
        let mut command = match self.before.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        };
        command
            .args(["--node-name", NODE, "--api-server", &self.api.address])
            .args(&self.options)
            .arg("--kubelet-dir")
            .arg(self.path("kubelet"))
            .arg("--cdi-dir")
            .arg(self.path("cdi"))
            .arg("--state-dir")
            .arg(self.path("claims"))
            .arg("--machine")
            .arg(self.rig.machine_path())
            .env("RADRM_LIB_DIR", artifacts::directory())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the plug-in");
        let (stderr, said) = (child.stderr.take().expect("a pipe"), Arc::clone(&self.said));
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                said.lock().expect("text").push_str(&(line + "\n"));
            }
        });
        self.plugin = Some(child);
    }

    /// Output of the plug-in.
    pub fn said(&self) -> String {
        self.said.lock().expect("text").clone()
    }

    /// Waits for something that the plug-in does.
    #[track_caller]
    pub fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            assert!(begin.elapsed() < Duration::from_secs(PATIENCE), "{what}: never\n{}", self.said());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends the plug-in a signal and waits for its end; its exit code, if it has one.
    pub fn stop(&mut self, signal: i32) -> Option<i32> {
        let mut child = self.plugin.take().expect("a running plug-in");
        let pid = i32::try_from(child.id()).expect("a pid");
        if signal != 0 {
            // SAFETY: signals a child that was not waited for.
            unsafe { libc::kill(pid, signal) };
        }
        child.wait().expect("its end").code()
    }

    pub fn registration(&self) -> PathBuf {
        self.path("kubelet/plugins_registry/radrm.dev@reg.sock")
    }

    /// The kubelet's side, after the registration.
    pub fn kubelet(&self) -> Kubelet {
        let mut kubelet = Kubelet { socket: self.registration(), service: REGISTRATION.to_owned() };
        let info = kubelet.info().expect("an answer");
        let status = RegistrationStatus { plugin_registered: true, error: String::new() };
        kubelet.notify(status).expect("an answer");
        kubelet.socket = PathBuf::from(info.endpoint);
        kubelet.service = PLUGIN[0].1.to_owned();
        kubelet
    }

    /// The names of the devices, in the order of the emulated GPUs.
    pub fn devices(&mut self) -> Vec<(String, u64)> {
        self.until("its slices are published", |node| !node.api.slices().is_empty());
        let mut devices = Vec::new();
        for slice in self.api.slices() {
            for device in slice["spec"]["devices"].as_array().expect("devices") {
                let index = device["attributes"]["index"]["int"].as_u64().expect("an index");
                devices.push((index, device["name"].as_str().expect("a name").to_owned()));
            }
        }
        devices.sort();
        devices.into_iter().map(|(index, name)| (name, index)).collect()
    }

    /// Allocates a claim as the scheduler does: memory in bytes on devices.
    pub fn allocate(&self, name: &str, shares: &[(&str, u64)]) -> Claim {
        let uid = format!("uid-{name}");
        let result = |(number, (device, bytes)): (usize, &(&str, u64))| {
            json!({
                "request": format!("r{number}"), "driver": "radrm.dev", "pool": NODE, "device": device,
                "shareID": format!("share-{number}"), "consumedCapacity": { "memory": bytes.to_string() },
            })
        };
        let results: Vec<Value> = shares.iter().enumerate().map(result).collect();
        let claim = json!({
            "metadata": { "name": name, "namespace": "default", "uid": uid },
            "status": {
                "allocation": { "devices": { "results": results } },
                "reservedFor": [{ "resource": "pods", "name": name, "uid": format!("pod-{name}") }],
            },
        });
        self.api.state().claims.insert(format!("default/{name}"), claim);
        Claim { namespace: "default".into(), uid, name: name.into() }
    }

    /// The specification of a claim's device.
    pub fn specification(&self, claim: &Claim) -> Option<Value> {
        let path = self.path("cdi").join(format!("radrm.dev-claim_{}.json", claim.uid));
        Some(serde_json::from_slice(&fs::read(path).ok()?).expect("JSON"))
    }

    /// Names in a folder of the node, which may not be there yet.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(folder)) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.plugin.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // The memory of claims, where the plug-in could mount it.
        for claim in fs::read_dir(self.path("claims")).into_iter().flatten().flatten() {
            let mut unmount = Command::new("umount");
            let _ = unmount.args(["--lazy", "--quiet"]).arg(claim.path()).stderr(Stdio::null()).status();
        }
    }
}

/// The kubelet: one connection for each request.
#[derive(Clone, Debug)]
pub struct Kubelet {
    pub socket: PathBuf,
    pub service: String,
}

impl Kubelet {
    pub fn info(&self) -> Result<PluginInfo, Status> {
        call(&self.socket, &self.service, "GetInfo", InfoRequest {})
    }

    pub fn notify(&self, status: RegistrationStatus) -> Result<RegistrationStatusResponse, Status> {
        call(&self.socket, &self.service, "NotifyRegistrationStatus", status)
    }

    pub fn prepare(&self, claims: &[Claim]) -> Result<HashMap<String, NodePrepareResourceResponse>, Status> {
        let request = NodePrepareResourcesRequest { claims: claims.to_vec() };
        let answer: NodePrepareResourcesResponse =
            call(&self.socket, &self.service, "NodePrepareResources", request)?;
        Ok(answer.claims)
    }

    pub fn unprepare(
        &self,
        claims: &[Claim],
    ) -> Result<HashMap<String, NodeUnprepareResourceResponse>, Status> {
        let request = NodeUnprepareResourcesRequest { claims: claims.to_vec() };
        let answer: NodeUnprepareResourcesResponse =
            call(&self.socket, &self.service, "NodeUnprepareResources", request)?;
        Ok(answer.claims)
    }

    /// Prepares one claim, which must work.
    #[track_caller]
    pub fn prepared(&self, claim: &Claim) -> NodePrepareResourceResponse {
        let answer = self.prepare(std::slice::from_ref(claim)).expect("an answer").remove(&claim.uid);
        let answer = answer.expect("an answer for the claim");
        assert_eq!(answer.error, "");
        answer
    }

    /// Reason that a claim is refused.
    #[track_caller]
    pub fn refused(&self, claim: &Claim) -> String {
        let answer = self.prepare(std::slice::from_ref(claim)).expect("an answer").remove(&claim.uid);
        let answer = answer.expect("an answer for the claim");
        assert!(!answer.error.is_empty() && answer.devices.is_empty(), "{answer:?}");
        answer.error
    }
}

/// One request on a connection of its own.
pub fn call<Q, A>(socket: &Path, service: &str, method: &str, message: Q) -> Result<A, Status>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let stream = tokio::net::UnixStream::connect(socket);
        let stream = stream.await.map_err(|error| Status::unavailable(error.to_string()))?;
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(|error| Status::unavailable(error.to_string()))?;
        tokio::spawn(connection);
        let mut client = tonic::client::Grpc::with_origin(Http(sender), origin(socket));
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = http::uri::PathAndQuery::try_from(format!("/{service}/{method}")).expect("a path");
        let codec = tonic_prost::ProstCodec::<Q, A>::default();
        client.unary(Request::new(message), path, codec).await.map(tonic::Response::into_inner)
    })
}

/// The authority as the kubelet's client (grpc-go) makes it of a socket's path.
fn origin(socket: &Path) -> http::Uri {
    let mut authority = String::new();
    for byte in socket.display().to_string().bytes() {
        match byte {
            b'-' | b'_' | b'.' | b'~' | b'@' => authority.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => authority.push(char::from(byte)),
            _ => authority.push_str(&format!("%{byte:02X}")),
        }
    }
    let authority = http::uri::Authority::try_from(authority).expect("an authority that servers accept");
    http::Uri::builder().scheme("http").authority(authority).path_and_query("/").build().expect("an address")
}

/// An open connection as a service of tonic.
struct Http(hyper::client::conn::http2::SendRequest<Body>);

impl tower_service::Service<http::Request<Body>> for Http {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
