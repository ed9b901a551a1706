//! Protocol 3 as NVIDIA documents it: servers, namespaces, devices and SM partitions by `module verb` commands
//! (<https://docs.nvidia.com/deploy/mps/latest/mpsv3-interface.html>). No genuine daemon of it was at hand to compare with.
//!
//! Limits and partitions are written to files in the directories of namespaces and servers, where the emulated driver finds them.
//! GPUs are those of `RADRM_MPS_STANDIN_DEVICES` (`GPU-...=108,GPU-...=108`: multiprocessors), in chunks of four.
//! A GPU with clients that have no partition of it is not divided; with `v3-strict` none with any client is.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use super::{ABSENT, directory, pipe, user_of};

/// Multiprocessors of a chunk.
const CHUNK: u32 = 4;

/// Between the words of a command on the socket.
const SEPARATOR: &str = "\u{1f}";

/// Returns true if this program has protocol 3.
pub(super) fn is_offered() -> bool {
    env::var("RADRM_MPS_STANDIN").is_ok_and(|text| text.starts_with("v3"))
}

/// Returns true if the environment selects protocol 3.
pub(super) fn is_asked() -> bool {
    is_offered() && env::var("CUDA_MPS_PROTOCOL_VERSION").is_ok_and(|text| text == "3")
}

pub(super) fn help() -> ExitCode {
    println!(
        "Usage: nvidia-cuda-mps-control <module> <verb> [args]\nModules: server, namespace, client, device, sm-partition"
    );
    ExitCode::SUCCESS
}

/// Sends a command to the daemon and prints its answer.
pub(super) fn ask(words: &[&str]) -> ExitCode {
    let Ok(mut stream) = UnixStream::connect(pipe().join("control")) else {
        println!("{ABSENT}");
        return ExitCode::FAILURE;
    };
    let mut answer = String::new();
    let sent = writeln!(stream, "{}", words.join(SEPARATOR));
    let shut = stream.shutdown(std::net::Shutdown::Write);
    if sent.and(shut).and_then(|()| stream.read_to_string(&mut answer)).is_err() {
        println!("{ABSENT}");
        return ExitCode::FAILURE;
    }
    // A daemon of protocol 2 answers with a length in front.
    match answer.split_once('\n') {
        Some(("ok", text)) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Some((_, text)) => {
            print!("{text}");
            ExitCode::FAILURE
        }
        None => ExitCode::FAILURE,
    }
}

#[derive(Default)]
struct Namespace {
    memory: String,
    percent: String,
    _socket: Option<UnixListener>,
}

#[derive(Clone)]
struct Partition {
    device: String,
    name: String,
    chunks: u32,
}

impl Partition {
    fn id(&self) -> String {
        format!("P{}", self.name.replace('_', ""))
    }
}

struct Server {
    uid: u32,
    namespaces: BTreeMap<String, Namespace>,
    partitions: Vec<Partition>,
    _socket: UnixListener,
}

struct Daemon {
    pipe: PathBuf,
    log: fs::File,
    is_strict: bool,
    devices: Vec<(String, u32)>,
    servers: BTreeMap<String, Server>,
}

/// A client: its namespace's directory, and the partition that it names.
struct Client {
    pid: u32,
    pipe: PathBuf,
    partition: Option<String>,
    devices: String,
}

pub(super) fn daemon() -> ExitCode {
    let (pipe, log) = (pipe(), directory("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"));
    for directory in [&pipe, &log] {
        let _ = fs::create_dir_all(directory);
    }
    let socket = pipe.join("control");
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).expect("control socket");
    fs::write(pipe.join("nvidia-cuda-mps-control.pid"), format!("{}\n", std::process::id()))
        .expect("pid file");
    let home = pipe.clone();
    std::thread::spawn(move || {
        while home.exists() {
            std::thread::sleep(Duration::from_millis(200));
        }
        std::process::exit(0);
    });
    let log = fs::OpenOptions::new().create(true).append(true).open(log.join("control.log")).expect("log");
    let devices = env::var("RADRM_MPS_STANDIN_DEVICES").unwrap_or_default();
    let device = |text: &str| {
        let (uuid, sms) = text.split_once('=')?;
        Some((uuid.to_owned(), sms.parse().ok()?))
    };
    let seen = env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let devices = devices.split(',').filter_map(device);
    let devices = devices.filter(|(uuid, _)| seen.is_empty() || seen.split(',').any(|one| one == uuid));
    let is_strict = env::var("RADRM_MPS_STANDIN").is_ok_and(|text| text == "v3-strict");
    let mut daemon = Daemon { pipe, log, is_strict, devices: devices.collect(), servers: BTreeMap::new() };
    for stream in listener.incoming().map_while(Result::ok) {
        let mut line = String::new();
        let read = BufReader::new(&stream).read_line(&mut line);
        if read.is_err() || line.is_empty() {
            continue;
        }
        let words: Vec<&str> = line.trim_end_matches('\n').split(SEPARATOR).collect();
        let _ = writeln!(daemon.log, "Cmd:{}", words.join(" "));
        let asker = user_of(&stream);
        let may_change = asker == 0 || asker == own_uid();
        let changes = words.iter().any(|word| ["create", "delete", "set", "terminate", "-q"].contains(word));
        let answer = match changes && !may_change {
            true => Err("Insufficient privileges".to_owned()),
            false => daemon.answer(&words),
        };
        let quits = answer.is_ok() && words == ["-q"];
        let _ = match answer {
            Ok(text) => write!(&stream, "ok\n{text}"),
            Err(text) => write!(&stream, "error\n{text}\n"),
        };
        if quits {
            break;
        }
    }
    for server in daemon.servers.keys() {
        let _ = fs::remove_dir_all(daemon.pipe.join(server));
    }
    for file in ["control", "nvidia-cuda-mps-control.pid"] {
        let _ = fs::remove_file(daemon.pipe.join(file));
    }
    ExitCode::SUCCESS
}

fn own_uid() -> u32 {
    // SAFETY: a plain system call.
    unsafe { libc::getuid() }
}

/// The value of an option.
fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('='))
}

fn is_name(name: &str) -> bool {
    let is_in = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !name.is_empty() && name.len() <= 64 && name.chars().all(is_in)
}

/// A socket in a directory of its own.
fn listen(folder: &Path) -> Result<UnixListener, String> {
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    UnixListener::bind(folder.join("control")).map_err(|error| error.to_string())
}

impl Daemon {
    fn answer(&mut self, words: &[&str]) -> Result<String, String> {
        let absent = |what: &str, name: &str| format!("{what} '{name}' not found");
        let name = words.get(2).copied().filter(|word| !word.starts_with("--")).unwrap_or("");
        let of = option(words, "server").unwrap_or("");
        match words {
            ["-q"] => Ok(String::new()),
            ["server", "create", ..] => {
                let uid = option(words, "uid").map_or(own_uid(), |uid| uid.parse().unwrap_or(u32::MAX));
                if !is_name(name) || self.servers.contains_key(name) {
                    return Err(format!("Invalid server name '{name}'"));
                }
                let socket = listen(&self.pipe.join(name))?;
                let mut namespaces = BTreeMap::new();
                namespaces.insert("default".to_owned(), Namespace::default());
                let server = Server { uid, namespaces, partitions: Vec::new(), _socket: socket };
                self.servers.insert(name.to_owned(), server);
                Ok(format!("Server '{name}' created\n"))
            }
            ["server", "set", name, ..] => self.limit(name, "default", words),
            ["server", "list", ..] => Ok(self
                .servers
                .iter()
                .map(|(name, server)| {
                    let pipe = self.pipe.join(name);
                    format!("{name},{},{},Ready,{},-,-\n", server.uid, std::process::id(), pipe.display())
                })
                .collect()),
            ["server", "get", name, "pipe-directory"] => match self.servers.contains_key(*name) {
                true => Ok(format!("{}\n", self.pipe.join(name).display())),
                false => Err(absent("Server", name)),
            },
            ["namespace", "create", ..] => {
                let folder = self.pipe.join(of).join(name);
                let server = self.servers.get_mut(of).ok_or_else(|| absent("Server", of))?;
                if !is_name(name) || server.namespaces.contains_key(name) {
                    return Err(format!("Invalid namespace name '{name}'"));
                }
                let namespace = Namespace { _socket: Some(listen(&folder)?), ..Namespace::default() };
                server.namespaces.insert(name.to_owned(), namespace);
                Ok(format!("Namespace '{name}' created\n"))
            }
            ["namespace", "set", name, ..] => self.limit(of, name, words),
            ["namespace", "get", name, server, field] => {
                let folder = self.pipe.join(server).join(name);
                let found = self.servers.get(*server).and_then(|server| server.namespaces.get(*name));
                let namespace = found.ok_or_else(|| absent("Namespace", name))?;
                Ok(match *field {
                    "pipe-directory" => format!("{}\n", folder.display()),
                    "pinned-memory-limit" => format!("{}\n", namespace.memory),
                    "active-thread-percentage" => format!("{}\n", namespace.percent),
                    _ => return Err(format!("Unknown field '{field}'")),
                })
            }
            ["namespace", "list", ..] => {
                let server = self.servers.get(of).ok_or_else(|| absent("Server", of))?;
                let row = |(name, one): (&String, &Namespace)| {
                    let folder = self.pipe.join(of).join(name);
                    format!("{name},{of},Ready,{},{},0,{}\n", one.memory, one.percent, folder.display())
                };
                Ok(server.namespaces.iter().map(row).collect())
            }
            ["namespace", "delete", ..] => {
                let folder = self.pipe.join(of).join(name);
                let has_clients = clients(&folder).next().is_some();
                let server = self.servers.get_mut(of).ok_or_else(|| absent("Server", of))?;
                if has_clients && !words.contains(&"--force") {
                    return Err(format!("Namespace '{name}' has active clients"));
                }
                server.namespaces.remove(name).ok_or_else(|| absent("Namespace", name))?;
                let _ = fs::remove_dir_all(folder);
                Ok(String::new())
            }
            ["client", "list", ..] => Ok(clients(&self.pipe)
                .map(|client| {
                    let below = client.pipe.strip_prefix(&self.pipe).unwrap_or(&client.pipe);
                    let mut parts = below.iter().map(|part| part.to_string_lossy().into_owned());
                    let (server, namespace) = (parts.next(), parts.next());
                    let (server, namespace) =
                        (server.unwrap_or_default(), namespace.unwrap_or("default".into()));
                    format!("{},{server},0,{namespace},program\n", client.pid)
                })
                .collect()),
            ["device", "list", ..] => {
                let row = |(at, (uuid, sms)): (usize, &(String, u32))| {
                    format!("{at},{of},00000000:0{at}:00.0,{uuid},Emulated GPU,{sms},{},-\n", sms / CHUNK)
                };
                Ok(self.devices.iter().enumerate().map(row).collect())
            }
            ["sm-partition", "create", ..] => self.divide(of, name, words),
            ["sm-partition", "delete", ..] => {
                let device = option(words, "device").unwrap_or("");
                let server = self.servers.get_mut(of).ok_or_else(|| absent("Server", of))?;
                let before = server.partitions.len();
                server.partitions.retain(|one| one.name != name || one.device != device);
                if server.partitions.len() == before {
                    return Err(absent("SM partition", name));
                }
                self.write_partitions(of);
                Ok(format!("SM partition '{name}' deleted from device {device}\n"))
            }
            ["sm-partition", "list", ..] => {
                let server = self.servers.get(of).ok_or_else(|| absent("Server", of))?;
                let wanted = option(words, "device");
                let mut text = String::new();
                for (uuid, sms) in
                    self.devices.iter().filter(|(uuid, _)| wanted.is_none_or(|one| one == uuid))
                {
                    let own = || server.partitions.iter().filter(|one| one.device == *uuid);
                    for Partition { name, chunks, .. } in own() {
                        let id = own().find(|one| one.name == *name).map(Partition::id).unwrap_or_default();
                        text +=
                            &format!("{of},{uuid},{name},{chunks},{},false,created,{id}\n", chunks * CHUNK);
                    }
                    let left = sms / CHUNK - own().map(|one| one.chunks).sum::<u32>();
                    if left > 0 && words.contains(&"--all") {
                        text += &format!("{of},{uuid},-,{left},{},-,unallocated,-\n", left * CHUNK);
                    }
                }
                Ok(text)
            }
            _ => Err(format!("Unknown command '{}'", words.join(" "))),
        }
    }

    /// Sets limits of a namespace.
    fn limit(&mut self, server: &str, name: &str, words: &[&str]) -> Result<String, String> {
        let folder = self.pipe.join(server);
        let folder = if name == "default" { folder } else { folder.join(name) };
        let found = self.servers.get_mut(server).and_then(|server| server.namespaces.get_mut(name));
        let namespace = found.ok_or_else(|| format!("Namespace '{name}' not found"))?;
        if let Some(memory) = option(words, "pinned-memory-limit") {
            let mib = memory.strip_suffix('M').and_then(|mib| mib.parse::<u64>().ok());
            mib.ok_or_else(|| format!("Invalid limit '{memory}'"))?;
            memory.clone_into(&mut namespace.memory);
        }
        if let Some(percent) = option(words, "active-thread-percentage") {
            let valid = percent.parse::<u8>().is_ok_and(|percent| (1..=100).contains(&percent));
            valid.then_some(()).ok_or_else(|| format!("Invalid percentage '{percent}'"))?;
            percent.clone_into(&mut namespace.percent);
        }
        let mut text = String::new();
        if !namespace.percent.is_empty() {
            text += &format!("percent {}\n", namespace.percent);
        }
        if let Some(mib) = namespace.memory.strip_suffix('M') {
            text += &format!("memory_mib {mib}\n");
        }
        write(&folder.join("standin-limits"), &text);
        Ok(String::new())
    }

    /// Makes an SM partition.
    fn divide(&mut self, of: &str, name: &str, words: &[&str]) -> Result<String, String> {
        let device = option(words, "device").unwrap_or("").to_owned();
        let chunks = option(words, "chunks").and_then(|text| text.parse().ok()).filter(|chunks| *chunks > 0);
        let chunks: u32 = chunks.ok_or("--chunks must be a positive integer")?;
        let found = self.devices.iter().find(|(uuid, _)| *uuid == device);
        let all = found.ok_or_else(|| format!("Device '{device}' not found"))?.1 / CHUNK;
        let server = self.servers.get_mut(of).ok_or_else(|| format!("Server '{of}' not found"))?;
        let own = || server.partitions.iter().filter(|one| one.device == device);
        let is_active = clients(&self.pipe.join(of)).any(|client| {
            let is_there = client.devices.is_empty() || client.devices.split(',').any(|one| one == device);
            is_there && (self.is_strict || client.partition.is_none())
        });
        if is_active {
            return Err(format!("Device {device} has active clients"));
        }
        if own().any(|one| one.name == name) || chunks > all - own().map(|one| one.chunks).sum::<u32>() {
            return Err(format!("Device {device} does not have enough free chunks"));
        }
        let partition = Partition { device: device.clone(), name: name.to_owned(), chunks };
        let id = partition.id();
        server.partitions.push(partition);
        self.write_partitions(of);
        let sms = chunks * CHUNK;
        Ok(format!(
            "SM partition '{name}' created on device {device} (sm-count={sms})\nCUDA_MPS_SM_PARTITION={device}/{id}\n"
        ))
    }

    fn write_partitions(&self, server: &str) {
        let row = |one: &Partition| format!("{} {} {}\n", one.device, one.id(), one.chunks * CHUNK);
        let text: String = self.servers[server].partitions.iter().map(row).collect();
        write(&self.pipe.join(server).join("standin-partitions"), &text);
    }
}

/// Writes a file of the stand-in's own, with the mode of the sockets beside it.
fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("a file of the stand-in");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
}

/// Living processes whose pipe directory is this one or below it, and that have a `libcuda` mapped.
fn clients(pipe: &Path) -> impl Iterator<Item = Client> {
    let pipe = pipe.to_owned();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(move |entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let value = |name: &str| {
            let text = String::from_utf8_lossy(&environment).into_owned();
            let own = |line: &str| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
            text.split('\0').find_map(own)
        };
        let own = PathBuf::from(value("CUDA_MPS_PIPE_DIRECTORY")?);
        let maps = || fs::read_to_string(entry.path().join("maps")).unwrap_or_default();
        let is_client = own.starts_with(&pipe) && maps().lines().any(|line| line.contains("cuda.so"));
        let devices = value("CUDA_VISIBLE_DEVICES").unwrap_or_default();
        is_client.then(|| Client { pid, pipe: own, partition: value("CUDA_MPS_SM_PARTITION"), devices })
    })
}
