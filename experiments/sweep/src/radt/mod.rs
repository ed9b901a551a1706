//! Files of radT (Resource-Aware Data science Tracker): its tables and its parameter grids.
//!
//! A workload is the rows of equal Experiment and Workload: they start together. Python runs the file of a row in the
//! file's own directory, with the words of Params as arguments.

pub mod csv;
mod scalar;
mod tree;
mod yaml;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::Wrong;
use crate::options::options;
use crate::plan::{Collocation, Group, Profiler, Run, Stated};

pub use yaml::read as read_yaml;

/// Meters that radT starts beside a run; RADRM measures by itself.
const METERS: [&str; 8] = ["ps", "smi", "dcgmi", "top", "iostat", "free", "macmon", "none"];

/// Profilers that radT starts around a run.
const PROFILERS: [(&str, Profiler); 6] = [
    ("nsys", Profiler::Nsys),
    ("nsysraw", Profiler::Nsys),
    ("ncu", Profiler::Ncu),
    ("ncuraw", Profiler::Ncu),
    ("ncuattach", Profiler::Ncu),
    ("pytorch", Profiler::Torch),
];

/// One row of a table, or one combination of a grid.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    experiment: String,
    workload: String,
    name: String,
    status: String,
    devices: Vec<String>,
    collocation: Collocation,
    profiler: Option<Profiler>,
    file: String,
    params: String,
    /// In the table, from 0.
    number: Option<usize>,
}

/// A cell that pandas reads as no value.
fn is_missing(cell: &str) -> bool {
    ["", "nan", "NaN", "NA", "N/A", "n/a", "<NA>", "null", "NULL", "None"].contains(&cell)
}

/// GPUs that a cell names.
fn devices(cell: &str) -> Result<Vec<String>, Wrong> {
    let wrong = || Wrong::Device(cell.to_owned());
    let device = |part: &str| {
        let part = part.trim();
        // pandas turns a column of numbers with a hole into 0.0 and 1.0.
        let number = part.strip_suffix(".0").unwrap_or(part);
        let is_number =
            !number.is_empty() && number.len() <= 4 && number.bytes().all(|byte| byte.is_ascii_digit());
        let is_uuid = ["GPU-", "MIG-"]
            .iter()
            .any(|start| part.strip_prefix(start).is_some_and(|rest| !rest.is_empty()));
        match (is_number, is_uuid) {
            (true, _) => Ok(number.to_owned()),
            (_, true) => Ok(part.to_owned()),
            _ => Err(wrong()),
        }
    };
    if is_missing(cell) { Ok(vec!["0".to_owned()]) } else { cell.split('+').map(device).collect() }
}

fn collocation(cell: &str) -> Result<Collocation, Wrong> {
    if is_missing(cell) {
        return Ok(Collocation::Streams);
    }
    Collocation::parse(cell).ok_or_else(|| Wrong::Collocation(cell.to_owned()))
}

/// The profiler among the listeners of a cell; of several the last, as in radT.
fn profiler(cell: &str) -> Result<Option<Profiler>, Wrong> {
    let mut found = None;
    for name in cell.split('+').map(str::trim).filter(|name| !is_missing(name)) {
        let lower = name.to_ascii_lowercase();
        match PROFILERS.iter().find(|(known, _)| *known == lower) {
            Some((_, profiler)) => found = Some(*profiler),
            None if METERS.contains(&lower.as_str()) => {}
            None => return Err(Wrong::Listener(name.to_owned())),
        }
    }
    Ok(found)
}

/// Rows by workload, in the order in which workloads first stand there.
fn groups(rows: Vec<Row>, here: &Path, beside: &Path) -> Vec<Group> {
    let mut workloads: Vec<(String, Vec<Row>)> = Vec::new();
    for row in rows {
        let name = format!("{}+{}", row.experiment, row.workload);
        match workloads.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => workloads.push((name, vec![row])),
        }
    }
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let groups = workloads.into_iter().map(|(name, rows)| {
        let letters = letters(&rows);
        let stated = stated(&rows);
        // A workload with the rows of an earlier one repeats it.
        let content: Vec<_> = rows.iter().map(|row| format!("{row:?}", row = content(row))).collect();
        let repetition = seen.entry(content.join("\n")).or_default();
        *repetition += 1;
        let repetition = *repetition;
        let runs = rows.iter().zip(letters).map(|(row, letter)| run(row, &letter, repetition, here, beside));
        Group { runs: runs.collect(), name, stated }
    });
    groups.collect()
}

/// Content of a row, without its place in the table.
fn content(row: &Row) -> (&str, &str, &[String], &Collocation) {
    (&row.file, &row.params, &row.devices, &row.collocation)
}

/// radT's names of the members of a workload: the devices, a letter where several are on the same, the collocation.
fn letters(rows: &[Row]) -> Vec<String> {
    let on = |row: &Row| row.devices.join("+");
    let letter = |index: usize, row: &Row| {
        let alike = |rows: &[Row]| rows.iter().filter(|other| on(other) == on(row)).count();
        let mut letter = on(row);
        if alike(rows) > 1 {
            let before = alike(&rows[..index]);
            letter.push('_');
            // Behind Z come AA, AB and so on.
            let mut name = String::new();
            let mut left = before + 1;
            while left > 0 {
                name.insert(0, char::from(b'A' + ((left - 1) % 26) as u8));
                left = (left - 1) / 26;
            }
            letter.push_str(&name);
        }
        if row.collocation != Collocation::Streams {
            letter.push('_');
            letter.push_str(&row.collocation.to_string());
        }
        letter
    };
    rows.iter().enumerate().map(|(index, row)| letter(index, row)).collect()
}

/// Words of a cell of parameters. radT's README writes `batch-size=128` for an option; a name with a hyphen can be nothing else,
/// whereas `lr=0.1` may be meant as it is.
fn words(params: &str) -> Vec<String> {
    let option = |word: &str| {
        let (name, _) = word.split_once('=')?;
        let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.contains('-')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        is_name.then(|| format!("--{word}"))
    };
    params.split_whitespace().map(|word| option(word).unwrap_or_else(|| word.to_owned())).collect()
}

/// State of a workload from the column Status, as radT reads it.
fn stated(rows: &[Row]) -> Stated {
    let is = |word: &'static str| move |row: &Row| row.status.contains(word);
    match () {
        () if rows.iter().all(is("FINISHED")) => Stated::Finished,
        () if rows.iter().all(|row| is("FINISHED")(row) || is("FAILED")(row)) => Stated::Failed,
        () => Stated::Open,
    }
}

fn run(row: &Row, letter: &str, repetition: u32, here: &Path, beside: &Path) -> Run {
    let path = Path::new(&row.file);
    let directory = path.parent().unwrap_or(Path::new(""));
    let program = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // As radT does from the current directory; a table that is run from elsewhere finds what lies beside it.
    let directory: PathBuf = match here.join(directory) {
        from_here if from_here.join(&program).exists() || !beside.join(path).exists() => from_here,
        _ => beside.join(directory),
    };
    let words = words(&row.params);
    let given = options(&words);
    let named =
        given.iter().map(|(name, value)| (name.trim_start_matches('-').to_owned(), (*value).to_owned()));
    let whole = [("file".to_owned(), program.clone()), ("params".to_owned(), row.params.clone())];
    let parameters: BTreeMap<String, String> = named.chain(whole).collect();
    let shown =
        [row.name.as_str(), letter].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    Run {
        name: format!("{}/{} {shown}", row.experiment, row.workload),
        configuration: format!("{program} {}", row.params).trim().to_owned(),
        parameters,
        repetition,
        command: ["python3".to_owned(), program].into_iter().chain(words).collect(),
        directory,
        // radT shows output as it comes.
        environment: BTreeMap::from([("PYTHONUNBUFFERED".to_owned(), "1".to_owned())]),
        devices: row.devices.clone(),
        collocation: row.collocation.clone(),
        profiler: row.profiler,
        row: row.number,
        ..Run::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_read_as_radt_reads_them() {
        assert_eq!(devices("0+1").unwrap(), ["0", "1"]);
        assert_eq!(devices(" 2.0").unwrap(), ["2"]);
        assert_eq!(devices("MIG-abc").unwrap(), ["MIG-abc"]);
        assert_eq!(devices("").unwrap(), ["0"]);
        for wrong in ["x", "0+", "-1", "GPU-", "0,1"] {
            assert!(matches!(devices(wrong), Err(Wrong::Device(_))), "{wrong}");
        }
        assert_eq!(profiler("smi+top+dcgmi+iostat+free").unwrap(), None);
        assert_eq!(profiler("smi + nsys").unwrap(), Some(Profiler::Nsys));
        assert_eq!(profiler("smi+pytorch").unwrap(), Some(Profiler::Torch));
        assert_eq!(profiler("smy"), Err(Wrong::Listener("smy".into())));
    }

    #[test]
    fn parameters_are_options_one_by_one() {
        let of = |params: &str| {
            let row = Row { file: "train.py".into(), params: params.into(), ..Row::default() };
            run(&row, "0", 1, Path::new("/here"), Path::new("/beside"))
        };
        let plain = of("--batch-size 128 --lr=0.1 --amp -3");
        assert_eq!(plain.command[1..], ["train.py", "--batch-size", "128", "--lr=0.1", "--amp", "-3"]);
        let parameters: Vec<_> =
            plain.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let whole = "params=--batch-size 128 --lr=0.1 --amp -3";
        assert_eq!(parameters, ["amp=-3", "batch-size=128", "file=train.py", "lr=0.1", whole]);
        // As its README writes it, and as Hydra takes it.
        assert_eq!(of("batch-size=128 lr=0.1").command[2..], ["--batch-size=128", "lr=0.1"]);
    }

    #[test]
    fn members_of_a_workload_are_named_by_device_letter_and_collocation() {
        let row = |device: &str, collocation: Collocation| Row {
            devices: vec![device.into()],
            collocation,
            ..Row::default()
        };
        let rows = [row("0", Collocation::Mps), row("0", Collocation::Mps), row("1", Collocation::Streams)];
        assert_eq!(letters(&rows), ["0_A_MPS", "0_B_MPS", "1"]);
        let many = vec![row("0", Collocation::Streams); 28];
        assert_eq!(letters(&many)[25..], ["0_Z", "0_AA", "0_AB"]);
    }
}
