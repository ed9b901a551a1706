//! Dates in UTC, by the proleptic Gregorian calendar. The arithmetic is Howard Hinnant's: years begin in March.

use alloc::format;
use alloc::string::String;

/// The beginning of the calendar's era, days before 1970.
const ERA_BEFORE_1970: u64 = 719_468;
const DAYS_OF_ERA: u64 = 146_097;

/// Year, month and day, so many days after 1970-01-01.
#[must_use]
pub const fn date(days: u64) -> (u64, u64, u64) {
    let days = days + ERA_BEFORE_1970;
    let (era, day_of_era) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + (month <= 2) as u64, month, day)
}

/// Days from 1970-01-01 to a date; `None` if there is no such date, or it is outside the years 1970 to 9999.
#[must_use]
pub fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let from_march_year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (from_march_year / 400, from_march_year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * DAYS_OF_ERA + day_of_era - ERA_BEFORE_1970;
    (date(days) == (year, month, day)).then_some(days)
}

/// `2026-11-21 04:28:07`, of nanoseconds since 1970.
#[must_use]
pub fn utc(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix, expected) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_735_689_599, "2024-12-31 23:59:59"),
            (1_795_235_536, "2026-11-21 04:32:16"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(utc(unix * 1_000_000_000), expected);
            let (year, month, day) = date(unix / 86_400);
            assert_eq!(days(year, month, day), Some(unix / 86_400), "{expected}");
        }
    }

    #[test]
    fn days_that_the_calendar_does_not_have_are_refused() {
        for (year, month, day) in [(2026, 11, 31), (2100, 2, 29), (1969, 1, 1), (2026, 13, 1), (2026, 1, 0)] {
            assert_eq!(days(year, month, day), None, "{year}-{month}-{day}");
        }
    }
}
