//! Points of time as traces write them.

/// Seconds since 1970 of `2017-10-07 01:18:49` or `2017-10-07T01:18:49`, also with a zone behind it; `None` for what is none, such
/// as `Unknown`. All times of a trace are taken to be of one zone.
pub(super) fn seconds(text: &str) -> Option<i64> {
    let (date, clock) = text.trim().split_once([' ', 'T'])?;
    let clock = clock.split(['+', 'Z', ' ', '.']).next()?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(clock, ':')?;
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day) && (1900..10_000).contains(&year);
    let is_clock = hour < 24 && minute < 60 && second <= 60;
    (is_date && is_clock).then(|| days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let mut parts = text.split(between).map(|part| part.parse::<u16>().ok().map(i64::from));
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

/// Days since 1970-01-01 in the Gregorian calendar (Hinnant, "chrono-compatible low-level date algorithms").
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (text, expected) in [
            ("1970-01-01 00:00:00", 0),
            ("2017-10-07 01:18:49", 1_507_339_129),
            ("2024-02-29T23:59:59", 1_709_251_199),
            ("2026-11-29T16:00:26Z", 1_795_968_026),
        ] {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "None",
            "Unknown",
            "2017-10-07",
            "2017-13-07 01:00:00",
            "2017-10-07 25:00:00",
            "2017-10 01:00:00",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
