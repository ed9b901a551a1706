//! Time: that of the scheduler, which is not the wall clock's.
//!
//! An administrator sets the wall clock, or a time server does: no time limit may end by that, no grace time stand still.
//! So the scheduler's time is what the wall clock showed once in this boot, and what has passed since
//! (`CLOCK_BOOTTIME`, which counts a suspended machine's sleep too). It reads as a time of the day.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use radrm_base::calendar;
use radrm_scheduler_core::Millis;
use rustix::time::{ClockId, clock_gettime};
use serde::de::{Deserialize, Deserializer, Error as _};

use crate::error::DaemonError;

/// The clocks that a machine has, ms.
trait Clocks {
    /// Since 1970. Anybody may set it.
    fn wall(&self) -> u64;
    /// Since the machine was started. It cannot be set.
    fn boot(&self) -> u64;
}

struct Machine;

impl Clocks for Machine {
    fn wall(&self) -> u64 {
        radrm_os::time::epoch_ms()
    }

    fn boot(&self) -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
    }
}

/// The scheduler's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clock {
    /// By how much it is ahead of the time since the machine was started, ms.
    ahead: u64,
}

impl Clock {
    /// As the wall clock stands, but not before `least`, which is what the stored state knows.
    fn set(clocks: &impl Clocks, least: Millis) -> Self {
        Self { ahead: clocks.wall().max(least.0).saturating_sub(clocks.boot()) }
    }

    fn now(self, clocks: &impl Clocks) -> Millis {
        Millis(clocks.boot().saturating_add(self.ahead))
    }
}

static CLOCK: OnceLock<Clock> = OnceLock::new();

fn clock() -> Clock {
    *CLOCK.get_or_init(|| Clock::set(&Machine, Millis::ZERO))
}

/// The scheduler's time, milliseconds since 1970.
pub(crate) fn now() -> Millis {
    clock().now(&Machine)
}

/// One moment, by both clocks: read once for a batch of events, so that all that is decided in it has one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The scheduler's time.
    pub(crate) at: Millis,
    /// The clock of the daemon's own deadlines.
    pub(crate) mono: Instant,
}

impl Now {
    pub(crate) fn read() -> Self {
        Self { at: now(), mono: Instant::now() }
    }
}

unsafe extern "C" {
    /// Reads the time zone again, where it changed: `localtime_r` need not.
    safe fn tzset();
}

/// A time in the node's time zone.
fn local(at: Millis) -> Option<libc::tm> {
    let seconds = libc::time_t::try_from(at.0 / 1000).ok()?;
    tzset();
    // SAFETY: a structure of numbers and a pointer that is not used; all bits zero are valid.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to values that live as long as the call.
    let is_known = !unsafe { libc::localtime_r(&raw const seconds, &raw mut local) }.is_null();
    is_known.then_some(local)
}

/// Day of the week, 0 for Monday, and minute of the day, in the node's time zone.
pub(crate) fn local_minute(at: Millis) -> Option<(u8, u16)> {
    let local = local(at)?;
    let day = u8::try_from((local.tm_wday + 6) % 7).ok()?;
    Some((day, u16::try_from(local.tm_hour * 60 + local.tm_min).ok()?))
}

/// A date and a minute, in the node's time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalTime {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
}

impl LocalTime {
    /// Reads `2026-12-24 08:00`, `2026-12-24T08:00` or `2026-12-24`, which is its first minute.
    ///
    /// # Errors
    /// It is none, or the calendar does not have it.
    pub(crate) fn read(text: &str) -> Result<Self, DaemonError> {
        let none = || DaemonError::NoTime(text.to_owned());
        let number = |part: &str| {
            let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<u64>().ok().filter(|_| is_number && part.len() <= 4)
        };
        let text = text.trim();
        let (date, time) = text.split_once([' ', 'T']).unwrap_or((text, "00:00"));
        let mut parts = date.split('-').map(number);
        let mut part = || parts.next().flatten().ok_or_else(none);
        let (year, month, day) = (part()?, part()?, part()?);
        let (hour, minute) = time.trim().split_once(':').ok_or_else(none)?;
        let (hour, minute) = (number(hour).ok_or_else(none)?, number(minute).ok_or_else(none)?);
        if parts.next().is_some() || hour > 23 || minute > 59 {
            return Err(none());
        }
        calendar::days(year, month, day).ok_or_else(|| DaemonError::NoDate(text.to_owned()))?;
        Ok(Self { year, month, day, hour, minute })
    }

    /// The local time of ms since 1970.
    pub(crate) fn of(ms: u64) -> Self {
        let local = local(Millis(ms));
        let number = |of: fn(&libc::tm) -> libc::c_int, more: i64| {
            local.as_ref().map_or(0, |local| (i64::from(of(local)) + more).unsigned_abs())
        };
        Self {
            year: number(|local| local.tm_year, 1900),
            month: number(|local| local.tm_mon, 1),
            day: number(|local| local.tm_mday, 0),
            hour: number(|local| local.tm_hour, 0),
            minute: number(|local| local.tm_min, 0),
        }
    }

    /// Milliseconds since 1970 at which it begins.
    ///
    /// # Errors
    /// The node's time zone leaves it out, as it does one hour in spring.
    pub(crate) fn epoch_ms(&self) -> Result<u64, DaemonError> {
        let none = || DaemonError::NoDate(self.to_string());
        let number = |value: u64| libc::c_int::try_from(value).map_err(|_| none());
        tzset();
        // SAFETY: a structure of numbers and a pointer that is not used; all bits zero are valid.
        let mut local: libc::tm = unsafe { std::mem::zeroed() };
        local.tm_year = number(self.year)? - 1900;
        local.tm_mon = number(self.month)? - 1;
        local.tm_mday = number(self.day)?;
        local.tm_hour = number(self.hour)?;
        local.tm_min = number(self.minute)?;
        // Daylight saving as the zone has it then.
        local.tm_isdst = -1;
        // SAFETY: it points to a value that lives as long as the call.
        let seconds = unsafe { libc::mktime(&raw mut local) };
        let ms = u64::try_from(seconds).map_err(|_| none())?.saturating_mul(1000);
        if Self::of(ms) == *self { Ok(ms) } else { Err(none()) }
    }
}

impl fmt::Display for LocalTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute } = self;
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
    }
}

impl<'de> Deserialize<'de> for LocalTime {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::read(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// Goes on with the clock of the daemon before, if that ran in this boot and jobs of its are there, of which
/// `newest` is the latest time: what runs has begun by that clock. `file` keeps it.
pub(crate) fn begin(file: &Path, boot: &str, newest: Option<u64>) {
    let text = fs::read_to_string(file).unwrap_or_default();
    let least = Millis(newest.unwrap_or(0));
    let kept = of_boot(&text, boot).filter(|clock| newest.is_some() && clock.now(&Machine) >= least);
    let clock = kept.unwrap_or_else(|| Clock::set(&Machine, least));
    let _ = CLOCK.set(clock);
    let words = format!("{boot} {}\n", clock.ahead);
    if words != text {
        let _ = fs::write(file, words);
    }
}

/// Clock that the text of its file states, if it is of this boot.
fn of_boot(text: &str, boot: &str) -> Option<Clock> {
    let (of, ahead) = text.strip_suffix('\n')?.split_once(' ')?;
    (of == boot).then_some(Clock { ahead: ahead.parse().ok()? })
}

/// The clock, as a word for a process that is to go by it too.
pub(crate) fn word() -> String {
    clock().ahead.to_string()
}

/// Goes by the clock of the process that gave this word.
pub(crate) fn follow(word: Option<&OsStr>) {
    if let Some(ahead) = word.and_then(OsStr::to_str).and_then(|word| word.parse().ok()) {
        let _ = CLOCK.set(Clock { ahead });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Fake {
        wall: Cell<u64>,
        boot: Cell<u64>,
    }

    impl Fake {
        fn passes(&self, ms: u64) {
            self.wall.set(self.wall.get() + ms);
            self.boot.set(self.boot.get() + ms);
        }
    }

    impl Clocks for Fake {
        fn wall(&self) -> u64 {
            self.wall.get()
        }

        fn boot(&self) -> u64 {
            self.boot.get()
        }
    }

    const HOUR: u64 = 3_600_000;

    #[test]
    fn a_step_of_the_wall_clock_neither_ends_a_time_limit_nor_stops_one() {
        let clocks = Fake { wall: Cell::new(1000 * HOUR), boot: Cell::new(5 * HOUR) };
        let clock = Clock::set(&clocks, Millis::ZERO);
        assert_eq!(clock.now(&clocks), Millis(1000 * HOUR));
        clocks.passes(1500);
        clocks.wall.set(1002 * HOUR);
        assert_eq!(clock.now(&clocks), Millis(1000 * HOUR + 1500), "forward");
        clocks.wall.set(900 * HOUR);
        clocks.passes(1000);
        assert_eq!(clock.now(&clocks), Millis(1000 * HOUR + 2500), "backward");
    }

    /// The zone of the process that runs the test may be UTC: children have others.
    #[test]
    fn the_local_minute_is_that_of_the_nodes_time_zone() {
        if std::env::var_os("RADRM_TEST_CHILD").is_none() {
            for zone in ["UTC0", "XYZ-5:45", "EST5EDT,M3.2.0,M11.1.0"] {
                let mut child = std::process::Command::new(std::env::current_exe().unwrap());
                child.args(["--exact", "time::tests::the_local_minute_is_that_of_the_nodes_time_zone"]);
                let done = child.env("TZ", zone).env("RADRM_TEST_CHILD", "1").output().unwrap();
                let text = String::from_utf8_lossy(&done.stdout).into_owned();
                assert!(done.status.success() && text.contains("1 passed"), "{zone}: {text}");
            }
            return;
        }
        for text in ["2026-12-24 08:00", "2026-07-01 00:30", "2026-03-08"] {
            let time = LocalTime::read(text).unwrap();
            let date = std::process::Command::new("date").args(["-d", text, "+%s"]).output().unwrap();
            let expected: u64 = String::from_utf8(date.stdout).unwrap().trim().parse().unwrap();
            assert_eq!(time.epoch_ms().unwrap(), expected * 1000, "{text}");
            assert_eq!(LocalTime::of(expected * 1000), time);
        }
        if std::env::var("TZ").unwrap().starts_with("EST") {
            // The clock goes from 2:00 to 3:00.
            assert!(LocalTime::read("2026-03-08 02:30").unwrap().epoch_ms().is_err());
        }
        // 1970 began on a Thursday.
        let begin = match std::env::var("TZ").unwrap().as_str() {
            "XYZ-5:45" => (3, 5 * 60 + 45),
            "UTC0" => (3, 0),
            _ => (2, 19 * 60),
        };
        assert_eq!(local_minute(Millis(0)), Some(begin));
        for seconds in [0_u64, 951_782_399, 1_719_000_000, 1_800_000_000] {
            let date = std::process::Command::new("date");
            let out = { date }.args(["-d", &format!("@{seconds}"), "+%u %H %M"]).output().unwrap();
            let text = String::from_utf8(out.stdout).unwrap();
            let words: Vec<u16> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
            let (day, minute) = local_minute(Millis(seconds * 1000)).unwrap();
            assert_eq!((u16::from(day) + 1, minute), (words[0], words[1] * 60 + words[2]), "{seconds}");
        }
    }

    #[test]
    fn only_dates_of_the_calendar_are_times() {
        assert_eq!(LocalTime::read("2026-12-24").unwrap().to_string(), "2026-12-24 00:00");
        assert_eq!(LocalTime::read(" 2028-02-29 9:05").unwrap().to_string(), "2028-02-29 09:05");
        for text in
            ["", "2026", "2026-12", "2026-12-24 8", "2026-12-24 24:00", "2026-12-24 08:60", "24.12.2026"]
        {
            let error = LocalTime::read(text).unwrap_err().to_string();
            assert!(error.contains("such as \"2026-12-24 08:00\""), "{error}");
        }
        for text in ["2026-11-31", "2027-02-29 08:00", "2026-13-01"] {
            let error = LocalTime::read(text).unwrap_err().to_string();
            assert!(error.contains("no such date"), "{error}");
        }
    }

    #[test]
    fn time_is_never_behind_what_the_stored_state_knows() {
        let clocks = Fake { wall: Cell::new(7), boot: Cell::new(3) };
        let clock = Clock::set(&clocks, Millis(500));
        assert_eq!(clock.now(&clocks), Millis(500));
        clocks.passes(4);
        assert_eq!(clock.now(&clocks), Millis(504));
    }

    #[test]
    fn the_next_daemon_goes_on_with_the_clock_of_its_boot_only() {
        assert_eq!(of_boot("b1 42\n", "b1"), Some(Clock { ahead: 42 }));
        for (text, boot) in [("b1 42\n", "b2"), ("b1 4", "b1"), ("b1 x\n", "b1"), ("", "")] {
            assert_eq!(of_boot(text, boot), None, "{text}");
        }
    }
}
