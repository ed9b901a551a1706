//! The user at the other end of a TCP connection of this machine.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Sizes of `nlmsghdr`, `inet_diag_req_v2`, `inet_diag_sockid` and `inet_diag_msg`, see sock_diag(7).
const HEADER: usize = 16;
const REQUEST: usize = 56;
const SOCKET_ID: usize = 48;
const ANSWER: usize = 72;
/// `SOCK_DIAG_BY_FAMILY`, the type of a request and of its answer.
const BY_FAMILY: u16 = 20;
/// `TCP_ESTABLISHED`. Sockets in other states may have lost their user, and are reported as root's.
const ESTABLISHED: u8 = 1;

/// Returns the user who made the other end of this connection, as the kernel reports it. Returns `None` if the other end
/// is on another machine or in another network namespace, is closed by now, or cannot be looked up here.
#[must_use]
pub fn owner(stream: &TcpStream) -> Option<u32> {
    let (theirs, ours) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
    let answer = exchange(&request(theirs, ours)?).ok()?;
    uid(&answer, theirs)
}

/// A question for the one socket from `local` to `remote`.
fn request(local: SocketAddr, remote: SocketAddr) -> Option<[u8; HEADER + REQUEST]> {
    let family = match local {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let mut out = [0; HEADER + REQUEST];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        out.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
        at += bytes.len();
        Some(())
    };
    put(&u32::try_from(HEADER + REQUEST).ok()?.to_ne_bytes())?;
    put(&BY_FAMILY.to_ne_bytes())?;
    put(&u16::try_from(libc::NLM_F_REQUEST).ok()?.to_ne_bytes())?;
    put(&[0; 8])?;
    put(&[u8::try_from(family).ok()?, u8::try_from(libc::IPPROTO_TCP).ok()?, 0, 0])?;
    // All states.
    put(&u32::MAX.to_ne_bytes())?;
    put(&local.port().to_be_bytes())?;
    put(&remote.port().to_be_bytes())?;
    put(&address(local.ip()))?;
    put(&address(remote.ip()))?;
    // Any interface; no cookie.
    put(&0_u32.to_ne_bytes())?;
    put(&[0xff; 8])?;
    Some(out)
}

fn address(ip: IpAddr) -> [u8; 16] {
    let mut out = [0; 16];
    match ip {
        IpAddr::V4(ip) => out[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out = ip.octets(),
    }
    out
}

/// Asks the kernel, whose answer is there when the question was sent.
fn exchange(request: &[u8]) -> io::Result<Vec<u8>> {
    // SAFETY: a plain system call; the descriptor is checked and owned by nothing else.
    let socket = unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        match libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) {
            -1 => return Err(io::Error::last_os_error()),
            fd => OwnedFd::from_raw_fd(fd),
        }
    };
    let mut answer = vec![0_u8; 1024];
    let count = |count: isize| usize::try_from(count).map_err(|_| io::Error::last_os_error());
    // SAFETY: buffers that live here, with their lengths.
    unsafe {
        count(libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0))?;
        let received =
            libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), libc::MSG_DONTWAIT);
        answer.truncate(count(received)?);
    }
    Ok(answer)
}

/// The user in an answer on the socket at this address.
fn uid(answer: &[u8], local: SocketAddr) -> Option<u32> {
    let field = |at: usize| answer.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let body = answer.get(HEADER..HEADER + ANSWER)?;
    let port = u16::from_be_bytes(body.get(4..6)?.try_into().ok()?);
    let inode = field(HEADER + ANSWER - 4)?;
    let is_open = body.get(1) == Some(&ESTABLISHED) && inode != 0;
    (kind == BY_FAMILY && port == local.port() && is_open)
        .then(|| field(HEADER + 4 + SOCKET_ID + 12))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_kernel_reports_the_user_of_an_open_connection_only() {
        let own = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            let Some(found) = owner(&server) else {
                eprintln!("skipped: this kernel does not answer sock_diag requests");
                return;
            };
            assert_eq!(found, own);
            drop(client);
            assert_eq!(owner(&server), None, "a closed socket has no user");
        }
    }

    #[test]
    fn an_answer_on_another_socket_or_cut_off_has_no_user() {
        let local: SocketAddr = "127.0.0.1:4711".parse().unwrap();
        let mut answer = vec![0; HEADER + ANSWER];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        answer[HEADER + 1] = ESTABLISHED;
        answer[HEADER + 4..HEADER + 6].copy_from_slice(&4711_u16.to_be_bytes());
        answer[HEADER + 64..HEADER + 68].copy_from_slice(&1000_u32.to_ne_bytes());
        answer[HEADER + 68..].copy_from_slice(&7_u32.to_ne_bytes());
        assert_eq!(uid(&answer, local), Some(1000));
        assert_eq!(uid(&answer, "127.0.0.1:4712".parse().unwrap()), None);
        assert!((0..answer.len()).all(|cut| uid(&answer[..cut], local).is_none()));
        for (at, value) in [(4, 2), (HEADER + 1, 6), (HEADER + 68, 0)] {
            let mut other = answer.clone();
            other[at] = value;
            assert_eq!(uid(&other, local), None, "byte {at}");
        }
    }
}
