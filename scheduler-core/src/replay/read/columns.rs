//! Columns of the tables that are read. `docs/trace-columns.md` has their units.

use super::ReadError;
use super::table::missing;

/// A trace of the thesis. Columns of estimates, `epochs`, `task` and `after` may be left out.
pub(super) const THESIS: [&str; 8] =
    ["arrival_s", "rad", "model", "batch", "dataset", "n_gpus", "mem_mib", "duration_min"];

/// Pods of Alibaba's openb.
pub(super) const OPENB: [&str; 8] = [
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "creation_time",
    "scheduled_time",
    "deletion_time",
];

/// Machines of openb.
pub(super) const NODES: [&str; 4] = ["cpu_milli", "memory_mib", "gpu", "model"];

/// Jobs of Helios. `jobname` may be left out.
pub(super) const HELIOS: [&str; 5] = ["job_id", "user", "gpu_num", "submit_time", "duration"];

/// All columns of Alibaba's tasks of 2020, in their order.
pub(super) const PAI: [&str; 10] = [
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
];

/// Measured workloads.
pub(in crate::replay) const PROFILES: [&str; 4] = ["workload", "smact_mean", "smocc_mean", "drama_mean"];

/// Tables of jobs, by their name in errors.
const TRACES: [(&str, &[&str]); 4] = [
    ("a trace of the thesis", &THESIS),
    ("pods of openb", &OPENB),
    ("jobs of Helios", &HELIOS),
    ("tasks of Alibaba's PAI", &PAI),
];

/// Fewest columns by which a table is taken for one of these.
const ENOUGH: usize = 2;

/// Error of a table that has some of a form's columns, but not those by which the form is known: the form of which it has the
/// largest part. `None`: it has too few of any.
pub(super) fn nearly(text: &str) -> Option<ReadError> {
    let head = text.lines().find(|line| !line.trim().is_empty())?.trim_start_matches('\u{feff}');
    let has: Vec<&str> = head.split(',').map(|name| name.trim().trim_matches('"')).collect();
    let known = |columns: &[&str]| columns.iter().filter(|column| has.contains(column)).count();
    let (form, columns) = TRACES
        .into_iter()
        .filter(|(_, columns)| known(columns) >= ENOUGH)
        .max_by(|(_, a), (_, b)| (known(a) * b.len()).cmp(&(known(b) * a.len())))?;
    let (lacking, _) = missing(columns, |column| has.contains(&column))?;
    Some(ReadError::Nearly { form, lacking })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_lacks_a_forms_mark_names_the_form_and_all_that_is_missing() {
        let why = |text: &str| nearly(text).map(|error| error.to_string());
        assert_eq!(
            why("arrival_s,rad,model,batch\n0,a,b,1\n").unwrap(),
            "it has columns of a trace of the thesis and lacks dataset, n_gpus, mem_mib and duration_min; \
             docs/trace-columns.md has all, with their units"
        );
        assert_eq!(
            why("job_id,user,duration,gpu_num\n").unwrap(),
            "it has columns of jobs of Helios and lacks submit_time; docs/trace-columns.md has all, with their units"
        );
        assert_eq!(why("name,price\n1,2\n"), None);
        assert_eq!(why(""), None);
    }

    #[test]
    fn the_page_of_columns_has_every_column() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/trace-columns.md");
        let page = std::fs::read_to_string(page).unwrap();
        for column in TRACES.iter().flat_map(|(_, columns)| *columns).chain(&NODES).chain(&PROFILES) {
            assert!(page.contains(&format!("`{column}`")), "docs/trace-columns.md has no {column}");
        }
    }
}
