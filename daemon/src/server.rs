//! The socket: a thread for each connection, and the engine behind a channel.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use radrm_protocol::wire::{self, Request, Response};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error::DaemonError;
use super::message::Message;
use super::peer::Peer;

/// Connections at the same time, of all and of one user.
const MOST: usize = 512;
const MOST_OF_ONE: usize = 128;
/// A client that says nothing for so long has gone.
const SILENCE: Duration = Duration::from_secs(600);
/// A client that does not take its answer for so long neither.
const STUCK: Duration = Duration::from_secs(10);
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
    let lock = super::lock(Path::new(&name))?.ok_or_else(|| DaemonError::SocketTaken(path.to_owned()))?;
    let listener = bind_socket(path).map_err(failed)?;
    Ok((listener, lock))
}

fn bind_socket(path: &Path) -> std::io::Result<UnixListener> {
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
        // What is there and is no socket is not ours to remove.
        if is_socket.unwrap_or(true)
            && let Ok(listener) = bind_socket(&self.path)
        {
            (self.listener, self.file) = (listener, Self::file(&self.path));
            let path = self.path.display();
            radrm_text::output::say(super::NAME, &format!("{path} had been removed and is there again"));
        }
    }
}

/// Serves clients on threads of their own.
pub(crate) fn serve(
    listener: UnixListener,
    path: PathBuf,
    admin_group: String,
    to: Sender<Message>,
) -> Result<(), DaemonError> {
    let open: Arc<Mutex<Vec<u32>>> = Arc::default();
    let mut socket = Socket::new(listener, path);
    let accept = move || {
        loop {
            let Some(stream) = socket.accept() else { continue };
            let Ok(peer) = Peer::of(&stream, &admin_group) else { continue };
            {
                let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
                let own = open.iter().filter(|uid| **uid == peer.uid).count();
                if open.len() >= MOST || own >= MOST_OF_ONE {
                    continue;
                }
                open.push(peer.uid);
            }
            let (to, done, uid) = (to.clone(), Arc::clone(&open), peer.uid);
            let leave = move || {
                let mut open = done.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(at) = open.iter().position(|found| *found == uid) {
                    open.swap_remove(at);
                }
            };
            let left = leave.clone();
            let started = thread::Builder::new().name("client".into()).stack_size(STACK).spawn(move || {
                talk(stream, &peer, &to);
                leave();
            });
            if started.is_err() {
                left();
            }
        }
    };
    thread::Builder::new()
        .name("socket".into())
        .stack_size(STACK)
        .spawn(accept)
        .map(|_| ())
        .map_err(DaemonError::NoThread)
}

fn talk(mut stream: UnixStream, peer: &Peer, to: &Sender<Message>) {
    let _ = stream.set_read_timeout(Some(SILENCE));
    let _ = stream.set_write_timeout(Some(STUCK));
    if wire::greet(&mut stream).is_err() {
        return;
    }
    loop {
        let request: Request = match wire::read(&mut stream) {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error) => {
                if error.kind() != std::io::ErrorKind::WouldBlock {
                    let _ = wire::write(&mut stream, &Response::Refused("this is no request".to_owned()));
                }
                return;
            }
        };
        let (reply, answer) = channel();
        if to.send(Message::Asked(peer.clone(), request, reply)).is_err() {
            return;
        }
        let Ok(response) = answer.recv() else { return };
        if wire::answer(&mut stream, response).is_err() {
            return;
        }
    }
}
