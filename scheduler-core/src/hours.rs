//! Hours of the week, as people write them: `22:00-07:00`, `Mon-Fri 08:00-18:00, Sat 10:00-12:00`.

use std::fmt;

/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// Names of the days, in the order of their numbers.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Hours on some days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    /// The first and the last day, 0 for Monday. The first may be the later one: `Sat-Mon`.
    days: (u8, u8),
    /// Minutes of the day at which they begin and end. An end that is not later is one of the next day.
    from: u16,
    to: u16,
}

/// Hours of the week. Spans may overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hours(Vec<Span>);

impl Hours {
    /// Reads hours as users write them; `None`: the text is none.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let spans: Option<Vec<Span>> = text.split(',').map(|part| span(part.trim())).collect();
        spans.map(Self)
    }

    /// These hours and others.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Returns true if a minute of a day, 0 for Monday, is one of these hours.
    #[must_use]
    pub fn contains(&self, day: u8, minute: u16) -> bool {
        let before = (day + 6) % 7;
        self.0.iter().any(|span| match span.from < span.to {
            true => span.is_on(day) && (span.from..span.to).contains(&minute),
            // Over midnight.
            false => (span.is_on(day) && minute >= span.from) || (span.is_on(before) && minute < span.to),
        })
    }
}

impl Span {
    fn is_on(self, day: u8) -> bool {
        let (first, last) = self.days;
        if first <= last { (first..=last).contains(&day) } else { day >= first || day <= last }
    }
}

fn span(text: &str) -> Option<Span> {
    let (days, hours) = match text.rsplit_once(char::is_whitespace) {
        Some((days, hours)) => (days.trim(), hours),
        None => ("Mon-Sun", text),
    };
    let day = |name: &str| {
        let at = DAYS.iter().position(|day| day.eq_ignore_ascii_case(name.trim()))?;
        u8::try_from(at).ok()
    };
    let (first, last) = days.split_once('-').unwrap_or((days, days));
    let (from, to) = hours.split_once('-')?;
    let (from, to) = (minute(from)?, minute(to)?);
    // Of no length, or from the end of a day.
    let is_odd = from == DAY || from == to;
    (!is_odd).then_some(Span { days: (day(first)?, day(last)?), from, to })
}

/// `08:30`, `8:30`, `24:00`.
fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let digits = |part: &str, most: u16| {
        let number = part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<u16>().ok())?;
        number.filter(|number| part.len() <= 2 && *number <= most)
    };
    let (hour, minute) = (digits(hour, 24)?, digits(minute, 59).filter(|_| minute.len() == 2)?);
    Some(hour * 60 + minute).filter(|minute| *minute <= DAY)
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Span { days: (first, last), from, to }) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            let day = |day: u8| DAYS.get(usize::from(day)).copied().unwrap_or_default();
            match (*first, *last) {
                (0, 6) => {}
                (first, last) if first == last => write!(f, "{} ", day(first))?,
                (first, last) => write!(f, "{}-{} ", day(first), day(last))?,
            }
            write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_read_as_people_write_them_and_come_back() {
        for (text, shown) in [
            ("22:00-07:00", "22:00-07:00"),
            ("Mon-Sun 8:00-18:00", "08:00-18:00"),
            ("mon-fri 08:00-18:00,Sat 10:00-24:00", "Mon-Fri 08:00-18:00, Sat 10:00-24:00"),
            ("Sat-Mon 00:00-24:00", "Sat-Mon 00:00-24:00"),
        ] {
            let hours = Hours::read(text).unwrap();
            assert_eq!(hours.to_string(), shown);
            assert_eq!(Hours::read(shown), Some(hours));
        }
        for text in [
            "",
            "8-18",
            "08:00",
            "08:00-08:00",
            "24:00-07:00",
            "08:60-09:00",
            "25:00-26:00",
            "Mo 08:00-09:00",
            "8:0-9:00",
        ] {
            assert_eq!(Hours::read(text), None, "{text:?}");
        }
    }

    #[test]
    fn hours_over_midnight_belong_to_the_day_on_which_they_begin() {
        let at = |text: &str, day, hour: u16, minute: u16| {
            Hours::read(text).unwrap().contains(day, hour * 60 + minute)
        };
        let office = "Mon-Fri 08:00-18:00";
        assert!(at(office, 0, 8, 0) && at(office, 4, 17, 59));
        assert!(!at(office, 0, 7, 59) && !at(office, 4, 18, 0) && !at(office, 5, 12, 0));
        let night = "Fri 22:00-07:00";
        assert!(at(night, 4, 22, 0) && at(night, 5, 6, 59));
        assert!(!at(night, 4, 6, 59) && !at(night, 5, 7, 0) && !at(night, 5, 22, 0));
        assert!(at("Sun 22:00-07:00", 0, 3, 0), "into the next week");
        assert!(at("Sat-Mon 00:00-24:00", 6, 23, 59) && !at("Sat-Mon 00:00-24:00", 1, 0, 0));
        let both = Hours::read(night).unwrap().and(Hours::read(office).unwrap());
        assert!(both.contains(0, 600) && both.contains(4, 1400));
    }
}
