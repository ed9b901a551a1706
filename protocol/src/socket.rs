//! Sockets on which daemon and clients find each other.

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

/// Socket on which a daemon listens unless its configuration names another one.
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

/// Sockets on which a client looks for a daemon, in order.
/// These are the named one, or else one's own and the system's.
#[must_use]
pub fn sockets(named: Option<&Path>) -> Vec<PathBuf> {
    match named.map(Path::to_owned).or_else(|| absolute(SOCKET_VARIABLE)) {
        Some(socket) => vec![socket],
        None => vec![user_socket(), PathBuf::from(SYSTEM_SOCKET)],
    }
}
