//! Jobs of arrays in lists: those that wait share a line.

use std::collections::HashMap;

use radrm_protocol::array::ranges;
use radrm_protocol::wire::JobRow;
use radrm_scheduler_core::JobState;

/// A line of a list: what its first column shows, and the row that stands for all its jobs.
pub(super) type Line<'a> = (String, &'a JobRow);

/// One line for each job, but one only for all jobs of an array that wait or are held: `12_[3-99%4]`.
pub(super) fn lines(rows: &[JobRow]) -> Vec<Line<'_>> {
    let mut waiting: HashMap<(u64, JobState), Vec<u32>> = HashMap::new();
    for row in rows {
        if let Some(task) = row.task.filter(|_| shares(row)) {
            waiting.entry((task.array, row.state)).or_default().push(task.index);
        }
    }
    let mut lines = Vec::new();
    for row in rows {
        let JobRow { job, state, task, .. } = row;
        let name = match task {
            None => job.to_string(),
            Some(task) if !shares(row) => format!("{}_{}", task.array, task.index),
            // The first stands for all.
            Some(task) => {
                let Some(mut indices) = waiting.remove(&(task.array, *state)) else { continue };
                indices.sort_unstable();
                let bound = task.at_once.map(|most| format!("%{most}")).unwrap_or_default();
                let indices = if row.tasks.is_empty() { ranges(&indices) } else { row.tasks.clone() };
                format!("{}_[{indices}{bound}]", task.array)
            }
        };
        lines.push((name, row));
    }
    lines
}

fn shares(row: &JobRow) -> bool {
    row.state.is_queued()
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_protocol::wire::TaskRow;

    #[test]
    fn what_waits_of_an_array_is_one_line() {
        let row = |job, index: Option<u32>, state| JobRow {
            job,
            state,
            task: index.map(|index| TaskRow { array: 12, index, at_once: Some(4) }),
            ..JobRow::default()
        };
        let rows = [
            row(12, Some(0), JobState::Running),
            row(11, None, JobState::Waiting),
            row(15, Some(9), JobState::Waiting),
            row(13, Some(1), JobState::Waiting),
            row(14, Some(2), JobState::Waiting),
            row(16, Some(10), JobState::Held),
        ];
        let shown: Vec<(String, u64)> = lines(&rows).into_iter().map(|(name, row)| (name, row.job)).collect();
        let expected = [("12_0", 12), ("11", 11), ("12_[1-2,9%4]", 15), ("12_[10%4]", 16)];
        assert_eq!(shown, expected.map(|(name, job)| (name.to_owned(), job)));
        // radrmd has put them together already.
        let merged = JobRow { tasks: "1-2,9".to_owned(), ..row(13, Some(1), JobState::Waiting) };
        assert_eq!(lines(&[merged])[0].0, "12_[1-2,9%4]");
    }
}
