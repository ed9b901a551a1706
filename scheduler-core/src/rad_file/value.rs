//! Values of keys: memory, time, parts, signals.

use crate::units::{Bytes, Millis, Permille};

/// `12GiB`, `512MiB`, `10GB`: the unit must be there and mean one thing.
pub(super) fn memory(text: &str) -> Result<Bytes, String> {
    let (number, unit) = split(text);
    let factor: u64 = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "" | "K" | "M" | "G" | "T" => {
            return Err(format!("\"{text}\" can mean two things: write GiB or GB, MiB or MB"));
        }
        _ => return Err(format!("\"{text}\" is no amount of memory such as 12GiB")),
    };
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(Bytes((value * factor as f64) as u64)),
        _ => Err(format!("\"{text}\" is no amount of memory such as 12GiB")),
    }
}

/// `90s`, `30min`, `2h`, `1d`, `1:30:00`, `2-12:00:00`.
pub(super) fn time(text: &str) -> Result<Millis, String> {
    let wrong = || format!("\"{text}\" is no time such as 90s, 30min, 2h or 1:30:00");
    if text.contains(':') {
        let (days, clock) = match text.split_once('-') {
            Some((days, clock)) => (days.parse::<u64>().map_err(|_| wrong())?, clock),
            None => (0, text),
        };
        let parts: Vec<u64> =
            clock.split(':').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let [h, m, s] = parts[..] else {
            return Err(format!("\"{text}\" can mean two things: write hours, minutes and seconds"));
        };
        if m > 59 || s > 59 {
            return Err(wrong());
        }
        let seconds = days.checked_mul(86_400).and_then(|d| h.checked_mul(3600)?.checked_add(d));
        return seconds.and_then(|all| all.checked_add(m * 60 + s)).map(Millis::from_secs).ok_or_else(wrong);
    }
    let (number, unit) = split(text);
    let factor = match unit {
        "ms" => 1.0,
        "s" | "sec" => 1e3,
        "min" => 6e4,
        "h" => 3.6e6,
        "d" => 8.64e7,
        _ => return Err(wrong()),
    };
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(Millis((value * factor) as u64)),
        _ => Err(wrong()),
    }
}

/// `30%`.
pub(super) fn part(text: &str) -> Result<Permille, String> {
    match text.strip_suffix('%').map(|number| number.trim().parse::<f64>()) {
        Some(Ok(percent)) if percent > 0.0 && percent <= 100.0 => {
            Ok(Permille::from_fraction(percent / 100.0))
        }
        _ => Err(format!("\"{text}\" is no part such as 30%")),
    }
}

/// `USR1`, `SIGUSR1` or a number.
pub(super) fn signal(text: &str) -> Result<i32, String> {
    // Those that programs take for a checkpoint; Linux's numbers on x86-64 and arm64.
    const NAMES: [(&str, i32); 9] = [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("USR1", 10),
        ("USR2", 12),
        ("ALRM", 14),
        ("TERM", 15),
        ("CONT", 18),
        ("WINCH", 28),
    ];
    let name = text.strip_prefix("SIG").unwrap_or(text);
    let known = NAMES.iter().find(|known| known.0 == name).map(|known| known.1);
    // 9 and 19 cannot be caught: no program writes a checkpoint on them.
    let number =
        text.parse::<i32>().ok().filter(|number| (1..=64).contains(number) && ![9, 19].contains(number));
    known.or(number).ok_or_else(|| format!("\"{text}\" is no signal that a program can catch, such as USR1"))
}

fn split(text: &str) -> (&str, &str) {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..at], text[at..].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_mean_one_thing_or_are_refused() {
        assert_eq!(memory("12GiB"), Ok(Bytes::from_gib(12)));
        assert_eq!(memory("1.5 GB"), Ok(Bytes(1_500_000_000)));
        assert!(memory("12G").unwrap_err().contains("can mean two things"));
        assert!(memory("12").is_err() && memory("-1GiB").is_err() && memory("GiB").is_err());
        assert_eq!(time("90s"), Ok(Millis::from_secs(90)));
        assert_eq!(time("1:30:00"), Ok(Millis::from_mins(90)));
        assert_eq!(time("2-12:00:00"), Ok(Millis::from_mins(60 * 60)));
        assert!(time("1:30").unwrap_err().contains("can mean two things"));
        assert!(time("90").is_err() && time("0:99:00").is_err() && time("99999999999999999-0:0:0").is_err());
        assert_eq!(part("30%"), Ok(Permille(300)));
        assert!(part("0%").is_err() && part("101%").is_err() && part("0.3").is_err());
        assert_eq!((signal("USR1"), signal("SIGTERM"), signal("10")), (Ok(10), Ok(15), Ok(10)));
        assert!(signal("KILL").is_err() && signal("9").is_err() && signal("99").is_err());
    }
}
