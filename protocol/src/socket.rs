//! Where daemon and clients find each other.

use std::env;
use std::path::{Path, PathBuf};

/// Names the socket for clients and daemon.
pub const SOCKET_VARIABLE: &str = "RADRM_SOCKET";
/// The socket of the system's daemon.
const SYSTEM_SOCKET: &str = "/run/radrmd/socket";

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

fn absolute(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Where a daemon listens unless its configuration names another place.
#[must_use]
pub fn own_socket() -> PathBuf {
    if let Some(socket) = absolute(SOCKET_VARIABLE) {
        return socket;
    }
    if root() { PathBuf::from(SYSTEM_SOCKET) } else { user_socket() }
}

/// The socket of a user's own daemon.
fn user_socket() -> PathBuf {
    let uid = rustix::process::getuid().as_raw();
    absolute("XDG_RUNTIME_DIR").map_or_else(
        || PathBuf::from(format!("/tmp/radrmd-{uid}/socket")),
        |directory| directory.join("radrmd/socket"),
    )
}

/// Where a client finds a daemon: the one that is named, one's own, the system's.
#[must_use]
pub fn sockets(named: Option<&Path>) -> Vec<PathBuf> {
    match named.map(Path::to_owned).or_else(|| absolute(SOCKET_VARIABLE)) {
        Some(socket) => vec![socket],
        None => vec![user_socket(), PathBuf::from(SYSTEM_SOCKET)],
    }
}
