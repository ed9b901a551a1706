//! The socket: a thread for each connection, and the engine behind a channel.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use radrm_http::clients::{Bounds, Full, Room, Share, Until, User};
use radrm_os::PeerCredentials;
use radrm_protocol::descriptor;
use radrm_protocol::job_ref::JobRef;
use radrm_protocol::wire::{self, JobRow, Request, Response};
use radrm_text::output::say;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error::DaemonError;
use super::job_files;
use super::limited_groups::LimitedGroups;
use super::long_read::{LongRead, Progress};
use super::message::{Listing, Message, PAGE};
use super::peer::{self, Admins, Peer};
use super::user_limits::Named;

/// Connections at the same time; the reserve is for root and administrators.
const CONNECTIONS: Bounds = Bounds { all: 1280, of_user: 96, reserved: 128 };
/// Bytes of long requests that are read or wait for their answer.
const LONG_BYTES: Bounds = Bounds { all: 192 << 20, of_user: 32 << 20, reserved: 32 << 20 };
/// A client that says nothing for so long has gone.
const SILENCE: Duration = Duration::from_secs(600);
/// Time for both sides' first bytes.
const GREETING: Duration = Duration::from_secs(5);
/// Time from the first byte of a request to its last.
const REQUEST: Duration = Duration::from_secs(10);
/// Time to take an answer other than a list.
const ANSWER: Duration = Duration::from_secs(10);
/// Time between two words to a client whose request is being done. Clients give up after three such times of silence.
const WORKING: Duration = Duration::from_secs(20);
/// Time to take a whole list.
const LIST: Duration = Duration::from_secs(60);
/// A socket whose file was removed is made again within this time.
const SOCKET_CHECK: Duration = Duration::from_secs(2);
/// Parsing a large submission needs little; many threads wait at once.
const STACK: usize = 256 << 10;

/// Makes the socket. One that no daemon has is replaced.
pub(crate) fn listen(path: &Path) -> Result<(UnixListener, fs::File), DaemonError> {
    let failed = |error| DaemonError::file(path, &error);
    if fs::symlink_metadata(path).is_ok_and(|meta| !meta.file_type().is_socket()) {
        return Err(DaemonError::NoSocket(path.to_owned()));
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
        fs::create_dir_all(folder).map_err(failed)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let lock =
        super::process::lock(Path::new(&name))?.ok_or_else(|| DaemonError::SocketTaken(path.to_owned()))?;
    let listener = bind_socket(path).map_err(failed)?;
    Ok((listener, lock))
}

fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    // Every user may ask; who asks is known.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// The listener, or a new one where its file was removed or replaced: clients would not find it any more.
struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and number of the file.
    file: Option<(u64, u64)>,
}

impl Socket {
    fn new(listener: UnixListener, path: PathBuf) -> Self {
        let file = Self::file(&path);
        Self { listener, path, file }
    }

    fn file(path: &Path) -> Option<(u64, u64)> {
        fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
    }

    /// The next client, or none for a while.
    fn accept(&mut self) -> Option<UnixStream> {
        let mut polled = [PollFd::new(&self.listener, PollFlags::IN)];
        let wait = Timespec { tv_sec: SOCKET_CHECK.as_secs().cast_signed(), tv_nsec: 0 };
        match poll(&mut polled, Some(&wait)) {
            Ok(0) | Err(_) => {
                self.restore();
                None
            }
            Ok(_) => match self.listener.accept() {
                Ok((stream, _)) => Some(stream),
                Err(_) => {
                    // Out of descriptors, perhaps: others close theirs.
                    thread::sleep(Duration::from_millis(50));
                    None
                }
            },
        }
    }

    fn restore(&mut self) {
        if Self::file(&self.path) == self.file {
            return;
        }
        let is_socket = fs::symlink_metadata(&self.path).map(|meta| meta.file_type().is_socket());
        // What is there and is not a socket is not ours to remove.
        if is_socket.unwrap_or(true)
            && let Ok(listener) = bind_socket(&self.path)
        {
            (self.listener, self.file) = (listener, Self::file(&self.path));
            let path = self.path.display();
            say(crate::process::NAME, &format!("{path} had been removed and is there again"));
        }
    }
}

/// State that the threads of clients share.
#[derive(Clone)]
struct Shared {
    connections: Arc<Room>,
    long_bytes: Arc<Room>,
    admin_group: Arc<str>,
    admins: Arc<Admins>,
    limited: Arc<LimitedGroups>,
    to: Sender<Message>,
}

/// Has blocks as long as requests may be given back to the system when they are freed.
///
/// glibc raises the length from which it does so to that of the longest block so far, and then keeps one for each of its
/// arenas: users who take turns would make radrmd as large as all of them at once.
fn return_long_blocks() {
    // SAFETY: sets a number of the allocator.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
    }
}

/// Serves clients on threads of their own.
pub(crate) fn serve(
    listener: UnixListener,
    path: PathBuf,
    admin_group: String,
    limited: Arc<LimitedGroups>,
    to: Sender<Message>,
) -> Result<(), DaemonError> {
    return_long_blocks();
    let mut socket = Socket::new(listener, path);
    let admin_group: Arc<str> = admin_group.into();
    let shared = Shared {
        connections: Room::new(CONNECTIONS),
        long_bytes: Room::new(LONG_BYTES),
        admins: Arc::new(Admins::new(Arc::clone(&admin_group))),
        admin_group,
        limited,
        to,
    };
    let accept = move || {
        loop {
            let Some(stream) = socket.accept() else { continue };
            let Ok(credentials) = PeerCredentials::of(&stream) else { continue };
            let connection = match shared.enter(credentials) {
                Ok(connection) => connection,
                Err(full) => {
                    let _ = turn_away(&stream, full);
                    continue;
                }
            };
            let shared = shared.clone();
            // Without a thread the closure is dropped, and with it the connection and its share.
            let _ = thread::Builder::new().name("client".into()).stack_size(STACK).spawn(move || {
                let _ = shared.talk(&stream, credentials);
                drop(connection);
            });
        }
    };
    thread::Builder::new()
        .name("socket".into())
        .stack_size(STACK)
        .spawn(accept)
        .map(|_| ())
        .map_err(DaemonError::NoThread)
}

/// Says why there is no connection, as far as that takes no time.
fn turn_away(stream: &UnixStream, full: Full) -> io::Result<()> {
    let why = match full {
        Full::OfUser => {
            format!("you have {} connections to radrmd, the most of one user", CONNECTIONS.of_user)
        }
        Full::OfAll => "radrmd has as many connections as it serves; try again".to_owned(),
    };
    // A new connection has room for both, so this never waits; with no time at all nothing would be sent.
    let mut until = Until::new(stream, Duration::from_millis(100))?;
    until.write_all(&wire::HELLO)?;
    wire::write(&mut until, &Response::Later(why))
}

impl Shared {
    /// A share of the connections. Accounts are looked up only where the reserve is needed.
    fn enter(&self, credentials: PeerCredentials) -> Result<Share, Full> {
        let take =
            |is_privileged| self.connections.take(User { uid: Some(credentials.uid), is_privileged }, 1);
        if peer::is_root_or_own(credentials) {
            return take(true);
        }
        match take(false) {
            Err(Full::OfAll) if self.admins.has(credentials) => take(true),
            other => other,
        }
    }

    fn talk(&self, stream: &UnixStream, credentials: PeerCredentials) -> io::Result<()> {
        wire::greet(&mut Until::new(stream, GREETING)?).map_err(io::Error::other)?;
        let mut peer = Peer::of(credentials, &self.admin_group);
        loop {
            Until::new(stream, SILENCE)?.readable()?;
            let (request, _bytes) = match self.request(stream, &peer) {
                Ok(Some(request)) => request,
                Ok(None) => return Ok(()),
                Err(error) => {
                    let why = error.to_string();
                    let response = match error.kind() {
                        io::ErrorKind::TimedOut => return Err(error),
                        io::ErrorKind::QuotaExceeded => Response::Later(why),
                        _ => Response::Refused(format!("this is not a request: {why}")),
                    };
                    return respond(stream, response);
                }
            };
            match request {
                Request::Queue { all, ended, merge, first } => {
                    self.list(stream, &peer, Listing { all, ended, merge, first })?;
                }
                Request::Output { job, error } => self.output(stream, &peer, job, error)?,
                request => {
                    let answer = match LongRead::of(request) {
                        Ok(read) => self.read(&peer, read)?,
                        Err(request) => {
                            if may_limit(&request) {
                                peer.look_up_groups(&self.limited);
                            }
                            let named = if peer.admin { Named::of(&request, &self.limited) } else { None };
                            match named {
                                Some(named) => {
                                    self.ask(|reply| Message::AskedOf(peer.clone(), request, named, reply))?
                                }
                                None if request.may_take_long() => {
                                    let answer =
                                        self.send(|reply| Message::Asked(peer.clone(), request, reply))?;
                                    in_the_end(&answer, WORKING, || respond(stream, Response::Working))?
                                }
                                None => self.ask(|reply| Message::Asked(peer.clone(), request, reply))?,
                            }
                        }
                    };
                    respond(stream, answer)?;
                }
            }
        }
    }

    /// Reads a request, which has its share of long ones until it is answered.
    fn request(&self, stream: &UnixStream, peer: &Peer) -> io::Result<Option<(Request, Option<Share>)>> {
        let Some(length) = wire::read_length(&mut Until::new(stream, REQUEST)?)? else { return Ok(None) };
        let user = User { uid: Some(peer.uid), is_privileged: peer.admin };
        let bytes = match length > wire::MAX_SHORT_REQUEST {
            true => Some(self.long_bytes.wait(user, length, Instant::now() + REQUEST).map_err(|_| {
                let why = "radrmd reads as many long requests as it has room for; try again";
                io::Error::new(io::ErrorKind::QuotaExceeded, why)
            })?),
            false => None,
        };
        let request = wire::read_request(&mut Until::new(stream, REQUEST)?, length)?;
        Ok(Some((request, bytes)))
    }

    /// Answers with a list, page by page.
    fn list(&self, stream: &UnixStream, peer: &Peer, listing: Listing) -> io::Result<()> {
        let list = match self.ask(|reply| Message::Listed(peer.clone(), listing, reply))? {
            Ok(list) => list,
            Err(response) => return respond(stream, response),
        };
        let mut until = Until::new(stream, LIST)?;
        let mut write = |mut rows: Vec<JobRow>| {
            while !rows.is_empty() {
                let rest = rows.split_off(rows.len().min(wire::ROWS));
                wire::write(&mut until, &Response::Part(rows))?;
                rows = rest;
            }
            io::Result::Ok(())
        };
        write(list.first)?;
        for page in list.jobs.chunks(PAGE) {
            write(self.ask(|reply| Message::Rows(peer.clone(), page.to_vec(), reply))?)?;
        }
        if list.left_out > 0 {
            wire::write(&mut until, &Response::LeftOut(list.left_out))?;
        }
        wire::write(&mut until, &Response::Jobs(Vec::new()))
    }

    /// Gives the open file with a job's output to those who may see the job: the engine waits for no file.
    fn output(&self, stream: &UnixStream, peer: &Peer, job: JobRef, error: bool) -> io::Result<()> {
        let row = match self.ask(|reply| Message::Asked(peer.clone(), Request::Show { job }, reply))? {
            Response::Job(row, _) => row,
            other => return respond(stream, other),
        };
        let path = PathBuf::from(row.stream(error).raw());
        match job_files::open(path.clone(), row.uid, peer.uid) {
            Ok(file) => {
                if row.uid != peer.uid {
                    let (job, owner, by) = (row.job, &row.user, &peer.name);
                    say(crate::process::NAME, &format!("the output of job {job} of {owner} is read by {by}"));
                }
                respond(stream, Response::Output { is_there: true })?;
                descriptor::send(stream, &file)
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                respond(stream, Response::Output { is_there: false })
            }
            Err(why) => {
                let why = DaemonError::OutputUnread { job: row.job, path, why };
                respond(stream, Response::Refused(why.to_string()))
            }
        }
    }

    /// Has an answer read, part by part.
    fn read(&self, peer: &Peer, mut read: LongRead) -> io::Result<Response> {
        loop {
            match self.ask(|reply| Message::Read(peer.clone(), read, reply))? {
                Progress::More(rest) => read = rest,
                Progress::Done(answer) => return Ok(answer),
            }
        }
    }

    /// Asks the engine, and waits for its answer.
    fn ask<T>(&self, message: impl FnOnce(Sender<T>) -> Message) -> io::Result<T> {
        self.send(message)?.recv().map_err(|_| ending())
    }

    /// Asks the engine. Returns the end to which the answer comes.
    fn send<T>(&self, message: impl FnOnce(Sender<T>) -> Message) -> io::Result<Receiver<T>> {
        let (reply, answer) = channel();
        self.to.send(message(reply)).map_err(|_| ending())?;
        Ok(answer)
    }
}

fn ending() -> io::Error {
    io::Error::other("radrmd is ending")
}

/// Waits for an answer, however long it takes; `say` is called after each of these intervals.
///
/// # Errors
/// radrmd is ending, or the client has gone: what was asked for is done all the same.
fn in_the_end<T>(
    answer: &Receiver<T>,
    interval: Duration,
    mut say: impl FnMut() -> io::Result<()>,
) -> io::Result<T> {
    loop {
        match answer.recv_timeout(interval) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => say()?,
            Err(RecvTimeoutError::Disconnected) => return Err(ending()),
        }
    }
}

/// Returns true if limits of the client's user, and so the user's groups, matter for the answer.
fn may_limit(request: &Request) -> bool {
    matches!(request, Request::Submit(_) | Request::SubmitTogether(_) | Request::Limits { .. })
}

fn respond(stream: &UnixStream, response: Response) -> io::Result<()> {
    wire::answer(&mut Until::new(stream, ANSWER)?, response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_hears_of_a_request_that_takes_long_until_its_answer_comes() {
        let (reply, answer) = channel();
        let mut said = 0;
        let found = in_the_end(&answer, Duration::from_millis(1), || {
            said += 1;
            if said == 3 {
                reply.send(7).unwrap();
            }
            Ok(())
        });
        assert_eq!((found.unwrap(), said), (7, 3));
        let gone = in_the_end(&answer, Duration::from_millis(1), || Err(io::Error::other("gone")));
        assert_eq!(gone.unwrap_err().to_string(), "gone");
        drop(reply);
        assert!(in_the_end(&answer, Duration::from_secs(600), || Ok(())).is_err());
    }
}
