//! The terminal of a live view: another screen, keys one by one, and everything as it was at the end.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use radrm_text::output;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::interface::Key;

/// A signal asked for the end.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Signals after which the terminal has to be put back.
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The terminal while it shows a view.
pub(crate) struct Screen {
    before: Termios,
}

extern "C" fn end(_: libc::c_int) {
    ENDED.store(true, Relaxed);
}

impl Screen {
    /// Takes the terminal of standard input and output.
    pub(crate) fn enter() -> io::Result<Self> {
        let input = io::stdin();
        let before = tcgetattr(&input)?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(&input, OptionalActions::Now, &raw)?;
        for signal in SIGNALS {
            let handler: extern "C" fn(libc::c_int) = end;
            // SAFETY: the handler only stores to an atomic.
            unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
        }
        let screen = Self { before };
        output::screen_to_stdout("\x1b[?1049h\x1b[?25l\x1b[2J")?;
        Ok(screen)
    }

    /// Columns and lines.
    pub(crate) fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(io::stdout()).ok();
        let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or((80, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row)))
    }

    /// The keys that are pressed within a time; at once when there is one.
    pub(crate) fn keys(&self, within: Duration) -> io::Result<Vec<Key>> {
        let input = io::stdin();
        let wait = Timespec {
            tv_sec: i64::try_from(within.as_secs()).unwrap_or(1),
            tv_nsec: i64::from(within.subsec_nanos()),
        };
        let found = poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&wait));
        if ENDED.load(Relaxed) {
            return Ok(vec![Key::Quit]);
        }
        match found {
            Ok(0) | Err(Errno::INTR) => return Ok(Vec::new()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 64];
        match rustix::io::read(&input, &mut bytes) {
            // The terminal is gone.
            Ok(0) | Err(Errno::IO) => Ok(vec![Key::Quit]),
            Ok(count) => Ok(Key::of(bytes.get(..count).unwrap_or_default())),
            Err(Errno::INTR | Errno::AGAIN) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone, and then nothing has to be put back.
        let _ = output::screen_to_stdout("\x1b[?25h\x1b[?1049l");
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
