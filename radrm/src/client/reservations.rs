//! Reservations of GPUs for people, as text.

use radrm_protocol::limits::ReservationRow;
use radrm_text::{Table, fit, left, right};

use super::text::time;

/// Widest list of people or text of a line.
const WIDTH: usize = 60;

/// All of them.
pub(super) fn table(rows: &[ReservationRow]) -> String {
    if rows.is_empty() {
        return "no GPU is reserved\n".to_owned();
    }
    let mut table = Table::new([
        right("NUMBER"),
        left("GPUS"),
        left("FOR"),
        left("FROM"),
        left("UNTIL"),
        left("STATE"),
        left("BY"),
        left("REASON"),
    ]);
    for row in rows {
        table.row([
            row.number.map_or_else(|| "-".to_owned(), |number| number.to_string()),
            gpus(row),
            fit(&row.whose, WIDTH),
            row.from.clone(),
            row.until.clone(),
            state(row),
            fit(row.by.as_deref().unwrap_or("radrmd.toml"), WIDTH),
            fit(row.reason.as_deref().unwrap_or("-"), WIDTH),
        ]);
    }
    let others: String = rows.iter().map(others).collect();
    format!("{table}{others}")
}

/// `GPUs 0, 1 are kept for alice from … until … (course)`, and jobs of others that still run there.
pub(super) fn line(row: &ReservationRow) -> String {
    let (noun, verb) = if row.gpus.len() == 1 { ("GPU", "is") } else { ("GPUs", "are") };
    let reason = row.reason.as_ref().map(|reason| format!(" ({})", fit(reason, 200))).unwrap_or_default();
    let (whose, from, until) = (fit(&row.whose, 200), &row.from, &row.until);
    format!("{noun} {} {verb} kept for {whose} from {from} until {until}{reason}\n{}", gpus(row), others(row))
}

/// The reservation that holds on a GPU.
pub(super) fn of_gpu(rows: &[ReservationRow], gpu: u32) -> Option<&ReservationRow> {
    rows.iter().find(|row| row.holds && row.gpus.contains(&gpu))
}

fn gpus(row: &ReservationRow) -> String {
    row.gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn state(row: &ReservationRow) -> String {
    match (row.holds, row.evict) {
        (true, _) => "holds".to_owned(),
        (false, evict) => {
            let evict = if evict { ", then evicts" } else { "" };
            format!("{} before{evict}", time(row.lead_ms))
        }
    }
}

/// Jobs of other people that still run on its GPUs.
fn others(row: &ReservationRow) -> String {
    let jobs: Vec<String> = row.others.iter().map(u64::to_string).collect();
    match jobs.len() {
        0 => String::new(),
        1 => format!("job {} of other people still runs there\n", jobs[0]),
        _ => format!("jobs {} of other people still run there\n", jobs.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> ReservationRow {
        ReservationRow {
            number: Some(3),
            whose: "alice, group lab".to_owned(),
            gpus: vec![0, 1],
            from: "2026-12-24 08:00".to_owned(),
            until: "2026-12-26 20:00".to_owned(),
            lead_ms: 86_400_000,
            reason: Some("course".to_owned()),
            by: Some("root".to_owned()),
            ..ReservationRow::default()
        }
    }

    #[test]
    fn a_reservation_is_shown_with_its_people_its_times_and_who_is_in_the_way() {
        let sentence =
            "GPUs 0, 1 are kept for alice, group lab from 2026-12-24 08:00 until 2026-12-26 20:00 (course)\n";
        assert_eq!(line(&row()), sentence);
        let one = ReservationRow { gpus: vec![1], reason: None, others: vec![7], holds: true, ..row() };
        let text = line(&one);
        assert!(text.starts_with("GPU 1 is kept for alice, group lab"), "{text}");
        assert!(text.ends_with("20:00\njob 7 of other people still runs there\n"), "{text}");
        let rows = [row(), one];
        assert_eq!((of_gpu(&rows, 0), of_gpu(&rows, 1)), (None, Some(&rows[1])));
        let text = table(&rows);
        assert!(
            text.contains("root") && text.contains("1 d 00 h before") && text.contains("holds"),
            "{text}"
        );
        let of_file = ReservationRow { number: None, by: None, ..row() };
        assert!(table(&[of_file]).contains("radrmd.toml"));
        assert!(table(&[]).contains("no GPU is reserved"));
    }
}
