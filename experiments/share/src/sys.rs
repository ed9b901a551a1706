//! System calls, each as a safe function.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

/// Descriptors that a forked child must not keep: as long as it does, the other side sees no end.
static OPEN: [AtomicI32; 512] = [const { AtomicI32::new(-1) }; 512];

/// A descriptor that [`forget`] closes in a forked child.
#[derive(Debug)]
pub struct Descriptor {
    fd: OwnedFd,
    entry: Option<usize>,
}

impl Descriptor {
    /// Takes a descriptor over.
    pub fn new(fd: OwnedFd) -> Self {
        let raw = fd.as_raw_fd();
        // Relaxed: a fork copies what its own thread sees, and an entry that is missed only stays open.
        let free =
            |entry: &AtomicI32| entry.compare_exchange(-1, raw, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        Self { entry: OPEN.iter().position(free), fd }
    }

    /// Its number.
    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The descriptor, to send it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.and_then(|entry| OPEN.get(entry)) {
            entry.store(-1, Ordering::Relaxed);
        }
    }
}

/// Closes all [`Descriptor`]s of this process: for a forked child, in which nothing of this library is used again.
pub fn forget() {
    for entry in &OPEN {
        let fd = entry.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: the descriptor is the child's own copy, and its owner in this process is never used nor dropped:
            // handles of another process are leaked (`ffi`).
            unsafe { libc::close(fd) };
        }
    }
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: a call has just made it, and no other owner knows it.
    checked(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn address(path: &Path) -> io::Result<libc::sockaddr_un> {
    // SAFETY: all zeros is a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(address)
}

fn socket(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointer.
    owned(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | flags, 0) })
}

/// A socket that listens at a path, readable and writable for the owner only.
pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    let (socket, address) = (socket(libc::SOCK_NONBLOCK)?, address(path)?);
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address lives for the call and has the length given.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    // SAFETY: no pointer.
    checked(unsafe { libc::listen(socket.as_raw_fd(), 64) })?;
    Ok(socket)
}

/// Connects to a path.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let (socket, address) = (socket(libc::SOCK_NONBLOCK)?, address(path)?);
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address lives for the call and has the length given.
    checked(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket)
}

/// The next connection; none if none waits.
pub fn accept(socket: RawFd) -> io::Result<Option<OwnedFd>> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: null pointers: the address is not wanted.
    match owned(unsafe { libc::accept4(socket, std::ptr::null_mut(), std::ptr::null_mut(), flags) }) {
        Err(error) if again(&error) => Ok(None),
        result => result.map(Some),
    }
}

/// Returns true if a call would have waited, or a signal interrupted it.
pub fn again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Process at the other end of a socket.
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its process; 0 if it is not visible from here.
    pub pid: i32,
    /// Readable once the process has ended; none on old systems and across some namespaces.
    pub end: Option<OwnedFd>,
}

/// Properties of the process at the other end of a socket, from the system.
pub fn peer(socket: RawFd) -> io::Result<Peer> {
    /// Since Linux 6.5; not yet in all C libraries' headers.
    const SO_PEERPIDFD: libc::c_int = 77;
    // SAFETY: all zeros is a valid ucred.
    let mut user: libc::ucred = unsafe { zeroed() };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer has the length given.
    checked(unsafe {
        let to = (&raw mut user).cast();
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut length)
    })?;
    let mut fd: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the buffer has the length given.
    let known = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut fd).cast(), &raw mut length)
    };
    let end = if known == 0 && fd >= 0 { owned(fd).ok() } else { pidfd(user.pid) };
    Ok(Peer { uid: user.uid, pid: user.pid, end })
}

fn pidfd(pid: i32) -> Option<OwnedFd> {
    if pid <= 0 {
        return None;
    }
    // SAFETY: no pointer. The system sets close-on-exec.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    owned(libc::c_int::try_from(fd).unwrap_or(-1)).ok()
}

/// Sends one packet, with a descriptor if one is given. Never waits and raises no signal.
pub fn send(socket: RawFd, packet: &[u8], descriptor: Option<BorrowedFd>) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
    let mut control = [0u64; 4];
    // SAFETY: all zeros is a valid msghdr.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    if let Some(descriptor) = descriptor {
        header.msg_control = control.as_mut_ptr().cast();
        // SAFETY: arithmetic only. The space for one descriptor is 24 bytes, and the buffer has 32.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as _;
        // SAFETY: the buffer is aligned and holds one message with one descriptor, as set above.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(message).cast::<RawFd>().write_unaligned(descriptor.as_raw_fd());
        }
    }
    // SAFETY: header, part and control live for the call.
    let sent = unsafe { libc::sendmsg(socket, &raw const header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A packet that came in.
pub struct Received {
    /// Its bytes; none at the end of the connection.
    pub bytes: usize,
    /// Descriptor that came with it. More than one is never sent, and further ones are closed.
    pub descriptor: Option<OwnedFd>,
    /// The packet was longer than the buffer, or had more descriptors than one.
    pub truncated: bool,
}

/// Receives one packet. Never waits.
pub fn receive(socket: RawFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = [0u64; 8];
    // SAFETY: all zeros is a valid msghdr.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: header, part and control live for the call and have the lengths given.
    let bytes = unsafe { libc::recvmsg(socket, &raw mut header, flags) };
    let Ok(bytes) = usize::try_from(bytes) else { return Err(io::Error::last_os_error()) };
    let mut descriptors = Vec::new();
    // SAFETY: the system has written whole messages up to msg_controllen, which the macros walk; every descriptor in
    // them is new and has no other owner.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(&raw const header);
        while let Some(found) = message.as_ref() {
            if found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SCM_RIGHTS {
                let length = found.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(message).cast::<RawFd>();
                for number in 0..length / size_of::<RawFd>() {
                    descriptors.push(OwnedFd::from_raw_fd(data.add(number).read_unaligned()));
                }
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
    }
    let truncated = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 || descriptors.len() > 1;
    Ok(Received { bytes, descriptor: descriptors.pop(), truncated })
}

/// Waits until one is ready; returns false after `timeout` milliseconds (negative: never) and after a signal.
pub fn poll(wanted: &mut [libc::pollfd], timeout: i32) -> io::Result<bool> {
    // SAFETY: the slice has the length given.
    match checked(unsafe { libc::poll(wanted.as_mut_ptr(), wanted.len() as libc::nfds_t, timeout) }) {
        Ok(ready) => Ok(ready > 0),
        Err(error) if again(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Waits for a packet or the peer's end, as [`poll`].
pub fn wait(socket: &Descriptor, end: Option<&Descriptor>, timeout: i32) -> io::Result<bool> {
    let end = end.map_or(-1, Descriptor::raw);
    poll(&mut [wanted(socket.raw(), libc::POLLIN), wanted(end, libc::POLLIN)], timeout)
}

/// Wakes all that sleep on a word in memory that processes share; whether there were any.
pub fn futex_wake(word: &AtomicU32) -> bool {
    let all = libc::c_int::MAX;
    // SAFETY: the word lives for the call. It cannot fail.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, all) > 0 }
}

/// Sleeps on a word in memory that processes share, if it has this value: until it is woken, or for so long. False
/// after a signal.
pub fn futex_wait(word: &AtomicU32, value: u32, timeout: Duration) -> bool {
    let seconds = timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX);
    let timeout = libc::timespec { tv_sec: seconds, tv_nsec: timeout.subsec_nanos().into() };
    // SAFETY: word and timeout live for the call. Any other error means that it did not sleep, or not for long.
    let code =
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const timeout) };
    code == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR)
}

/// Poll entry for events of a descriptor.
pub fn wanted(fd: RawFd, events: libc::c_short) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// A counter that wakes a thread that polls.
pub fn event() -> io::Result<OwnedFd> {
    // SAFETY: no pointer.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Wakes the thread that polls a counter.
pub fn wake(event: RawFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: the buffer has the length given. It only fails if the counter is about to overflow, and then it wakes.
    unsafe { libc::write(event, one.as_ptr().cast(), one.len()) };
}

/// Sets a counter back.
pub fn drain(event: RawFd) {
    let mut buffer = [0u8; 8];
    // SAFETY: the buffer has the length given.
    unsafe { libc::read(event, buffer.as_mut_ptr().cast(), buffer.len()) };
}

/// A file in memory without a name, which can be sealed.
pub fn memory_file(name: &str) -> io::Result<OwnedFd> {
    let name = CString::new(name).map_err(io::Error::other)?;
    /// Not executable for good. Since Linux 6.3, where a setting may demand it.
    const NOEXEC_SEAL: libc::c_uint = 8;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends with a zero.
    owned(unsafe { libc::memfd_create(name.as_ptr(), flags | NOEXEC_SEAL) })
        // SAFETY: as above.
        .or_else(|_| owned(unsafe { libc::memfd_create(name.as_ptr(), flags) }))
}

/// Adds seals to a file in memory.
pub fn seal(fd: RawFd, seals: libc::c_int) -> io::Result<()> {
    // SAFETY: no pointer.
    checked(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) }).map(drop)
}

/// The seals of a file; an error if it is none that can have seals.
pub fn seals(fd: RawFd) -> io::Result<libc::c_int> {
    // SAFETY: no pointer.
    checked(unsafe { libc::fcntl(fd, libc::F_GET_SEALS) })
}

/// Closes a descriptor in programs that this process starts.
pub fn close_on_exec(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: no pointer.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) }).map(drop)
}

/// Takes the lock of a whole file, which ends with this process and is not inherited by a child; false if another
/// process has it.
pub fn lock(fd: RawFd) -> io::Result<bool> {
    // SAFETY: all zeros is a valid flock: the whole file.
    let mut lock: libc::flock = unsafe { zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    // SAFETY: the structure lives for the call.
    match checked(unsafe { libc::fcntl(fd, libc::F_SETLK, &raw const lock) }) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EAGAIN)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Random bytes.
pub fn random(buffer: &mut [u8]) -> io::Result<()> {
    // SAFETY: the buffer has the length given. Up to 256 bytes come at once.
    let read = unsafe { libc::getrandom(buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    if usize::try_from(read) == Ok(buffer.len()) { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Leaves all signals to the program's own threads.
pub fn block_signals() {
    // SAFETY: all zeros is a valid set, which is filled before it is used; the mask is the calling thread's own.
    unsafe {
        let mut all: libc::sigset_t = zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// This process.
pub fn pid() -> u32 {
    std::process::id()
}

/// The user that this process acts as.
pub fn user() -> u32 {
    // SAFETY: no pointer, cannot fail.
    unsafe { libc::geteuid() }
}
