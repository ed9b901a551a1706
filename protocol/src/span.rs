//! Spans of time as people write them.

/// A span in milliseconds; `None` for what is none: `90s`, `30m`, `2h`, `1d`, `1:30:00`, `1-12:00:00`, or minutes.
#[must_use]
pub fn milliseconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let number = |text: &str| text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
    let ms = |value: f64| (value * 1000.0).round() as u64;
    for (unit, factor) in
        [("ms", 0.001), ("s", 1.0), ("min", 60.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)]
    {
        if let Some(value) = text.strip_suffix(unit).and_then(|rest| number(rest.trim())) {
            return Some(ms(value * factor));
        }
    }
    if !text.contains([':', '-']) {
        return number(text).map(|minutes| ms(minutes * 60.0));
    }
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, text),
    };
    let parts: Vec<u64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let dashed = text.contains('-');
    let [hours, minutes, seconds] = match (dashed, parts.as_slice()) {
        (true, [hours]) => [*hours, 0, 0],
        (true, [hours, minutes]) => [*hours, *minutes, 0],
        (_, [hours, minutes, seconds]) => [*hours, *minutes, *seconds],
        (false, [minutes, seconds]) => [0, *minutes, *seconds],
        _ => return None,
    };
    let sum = [(days, 86_400_000_u64), (hours, 3_600_000), (minutes, 60_000), (seconds, 1000)];
    sum.into_iter().try_fold(0, |sum: u64, (count, ms)| sum.checked_add(count.checked_mul(ms)?))
}
