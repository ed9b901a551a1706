//! The plug-in's sockets in the kubelet's folder.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use crate::devices::DRIVER;
use crate::error::KubeletError;
use crate::server::Socket;

/// The sockets' names. The kubelet's client states the path of a socket as the authority of its requests, with `/` as
/// `%2F`. Before an `@` that is the escaped name of a user; elsewhere it is no authority, and the server ends the stream.
const PLUGIN: &str = "dra@plugin.sock";
const REGISTRATION: &str = "radrm.dev@reg.sock";

/// Longest path of a socket, without the zero at its end.
const MAX_PATH: usize = 107;

/// Paths of the sockets.
#[derive(Clone, Debug)]
pub(crate) struct Sockets {
    /// The plug-in's own folder.
    folder: PathBuf,
    plugin: PathBuf,
    registration: PathBuf,
}

impl Sockets {
    /// In this folder of the kubelet, an absolute path.
    pub(crate) fn new(kubelet: &Path) -> Result<Self, KubeletError> {
        let folder = kubelet.join("plugins").join(DRIVER);
        let registry = kubelet.join("plugins_registry");
        let sockets = Self { plugin: folder.join(PLUGIN), registration: registry.join(REGISTRATION), folder };
        for path in [&sockets.plugin, &sockets.registration] {
            if draft_of(path).as_os_str().as_bytes().len() > MAX_PATH {
                return Err(KubeletError::LongPath(path.clone()));
            }
        }
        // The plug-in's folder is open: containers' processes read the shim in it through their mount.
        for (folder, mode) in [(&sockets.folder, 0o755), (&registry, 0o750)] {
            let made = fs::DirBuilder::new().recursive(true).mode(mode).create(folder);
            made.map_err(|source| KubeletError::Io { path: folder.clone(), source })?;
        }
        Ok(sockets)
    }

    /// Waits until no other plug-in has the lock, which goes with the file.
    pub(crate) fn lock(&self) -> Result<File, KubeletError> {
        let path = self.folder.join("lock");
        let lock = || {
            let flags = libc_flags();
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(flags)
                .open(&path)?;
            file.lock()?;
            Ok(file)
        };
        lock().map_err(|source| KubeletError::Io { path: path.clone(), source })
    }

    /// The folder of the libraries that containers mount.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.folder.join("lib")
    }

    /// The socket that the kubelet uses after the registration.
    pub(crate) fn endpoint(&self) -> String {
        self.plugin.display().to_string()
    }

    /// Listens, in place of what an earlier plug-in has left.
    pub(crate) fn bind(&self, socket: Socket) -> Result<UnixListener, KubeletError> {
        let path = self.path(socket);
        let bind = || {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            // Under a name that the kubelet ignores, until only root can use it: it comes as soon as it sees the other.
            let draft = draft_of(path);
            let _ = fs::remove_file(&draft);
            let listener = UnixListener::bind(&draft)?;
            fs::set_permissions(&draft, Permissions::from_mode(0o600))?;
            fs::rename(&draft, path)?;
            Ok(listener)
        };
        bind().map_err(|source| KubeletError::Io { path: path.to_owned(), source })
    }

    /// Removes the sockets, so that the kubelet knows that the plug-in has ended.
    pub(crate) fn remove(&self) {
        for socket in [Socket::Registration, Socket::Plugin] {
            let _ = fs::remove_file(self.path(socket));
        }
    }

    fn path(&self, socket: Socket) -> &Path {
        match socket {
            Socket::Plugin => &self.plugin,
            Socket::Registration => &self.registration,
        }
    }
}

/// The name of a socket that is being made.
fn draft_of(socket: &Path) -> PathBuf {
    let name = socket.file_name().unwrap_or_default().to_string_lossy();
    socket.with_file_name(format!(".{name}"))
}

/// No link is followed, and no child inherits it.
fn libc_flags() -> i32 {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC;
    i32::try_from(flags.bits()).unwrap_or(0)
}
