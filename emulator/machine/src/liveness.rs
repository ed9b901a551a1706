//! Liveness of the process that took a slot: still the same one, or gone.

use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

/// Identity of one program image in one process.
///
/// (pid, start time) names a process; the image tells two programs apart that one process runs one
/// after the other by `execve`, at which a GPU's memory comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessIdentity {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_time: u64,
    /// Random number that the kernel gives every image (`AT_RANDOM`); known to the process itself.
    pub image: u64,
    /// Bottom of the stack (field 28 of `/proc/PID/stat`); 0 where it may not be read.
    pub stack: u64,
}

impl ProcessIdentity {
    /// The calling process.
    pub fn current() -> Self {
        let pid = std::process::id();
        let stat = Stat::read(pid).unwrap_or_default();
        // SAFETY: getauxval only reads the process's auxiliary vector.
        let random = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const u64;
        let image = if random.is_null() {
            0
        } else {
            // SAFETY: AT_RANDOM points to 16 bytes that live as long as the process.
            unsafe { random.add(1).read_unaligned() ^ random.read_unaligned().rotate_left(17) }
        };
        Self { pid, start_time: stat.start_time, image, stack: stat.stack }
    }
}

/// Number of the pid namespace whose processes this one sees below `/proc`; 0 where it is not the one that its own
/// pid is of.
pub(crate) fn pid_namespace() -> u64 {
    static NAMESPACE: OnceLock<u64> = OnceLock::new();
    *NAMESPACE.get_or_init(|| {
        let own = std::fs::read_link("/proc/self")
            .is_ok_and(|own| own.as_os_str() == &*std::process::id().to_string());
        let namespace = std::fs::metadata("/proc/self/ns/pid").map(|found| found.ino());
        if own { namespace.unwrap_or(0) } else { 0 }
    })
}

/// Returns true if the image is still running.
/// A zombie is dead; a process whose first thread ended while others run is not.
pub fn is_alive(id: &ProcessIdentity) -> bool {
    let Some(stat) = Stat::read(id.pid) else {
        // Without a readable /proc only the process's existence can be asked.
        // SAFETY: signal 0 only asks.
        let answer = unsafe { libc::kill(id.pid as i32, 0) };
        return answer == 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
    };
    if stat.start_time != id.start_time {
        return false;
    }
    if matches!(stat.state, b'Z' | b'X' | b'x') && stat.threads <= 1 {
        return false;
    }
    stat.stack <= 1 || id.stack <= 1 || stat.stack == id.stack
}

/// Start time of a process that runs; `None` for one that does not, zombies included.
pub(crate) fn start_of(pid: u32) -> Option<u64> {
    let stat = Stat::read(pid)?;
    let dead = matches!(stat.state, b'Z' | b'X' | b'x') && stat.threads <= 1;
    (!dead).then_some(stat.start_time)
}

#[derive(Default)]
struct Stat {
    state: u8,
    threads: u64,
    start_time: u64,
    stack: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Fields are counted after the last `)`: the name before it may hold anything.
    fn parse(text: &[u8]) -> Option<Self> {
        let after = text.iter().rposition(|c| *c == b')')? + 1;
        let fields: Vec<&[u8]> =
            text[after..].split(|c| c.is_ascii_whitespace()).filter(|f| !f.is_empty()).collect();
        let number = |n: usize| -> Option<u64> {
            // Field 3 is the first after the name.
            std::str::from_utf8(fields.get(n - 3)?).ok()?.parse().ok()
        };
        Some(Self {
            state: *fields.first()?.first()?,
            threads: number(20)?,
            start_time: number(22)?,
            stack: number(28).unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_fields() {
        let mut line = b"12 (a ) b (c) S 1 2 3".to_vec();
        for n in 7..=30 {
            line.extend_from_slice(format!(" {}", n * 10).as_bytes());
        }
        let stat = Stat::parse(&line).unwrap();
        assert_eq!((stat.state, stat.threads, stat.start_time, stat.stack), (b'S', 200, 220, 280));
    }

    #[test]
    fn this_process_lives_and_a_reaped_child_does_not() {
        let me = ProcessIdentity::current();
        assert!(is_alive(&me));
        assert!(!is_alive(&ProcessIdentity { start_time: me.start_time + 1, ..me }), "pid taken by another");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let stat = Stat::read(child.id()).unwrap();
        let id = ProcessIdentity { pid: child.id(), start_time: stat.start_time, image: 0, stack: 0 };
        assert!(is_alive(&id));
        child.kill().unwrap();
        // Not waited for yet: a zombie at the latest when the wait would return.
        while Stat::read(child.id()).is_some_and(|s| s.state != b'Z') {
            std::thread::yield_now();
        }
        assert!(!is_alive(&id), "a zombie holds no memory");
        child.wait().unwrap();
        assert!(!is_alive(&id));
    }
}
