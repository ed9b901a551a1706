//! radT's tables: one row for each run.

use std::fs;
use std::io::Write;
use std::path::Path;

use ::csv::{ReaderBuilder, StringRecord, Trim, WriterBuilder};
use tempfile::NamedTempFile;

use super::{Row, collocation, devices, groups, is_missing, profiler};
use crate::error::{Column, Place, SweepError, Wrong};
use crate::plan::Plan;

/// The columns that radT knows.
const COLUMNS: [&str; 10] = [
    "Experiment",
    "Workload",
    "Name",
    "Status",
    "Run",
    "Devices",
    "Collocation",
    "Listeners",
    "File",
    "Params",
];

/// A table as it was read.
struct Table {
    header: StringRecord,
    rows: Vec<(u64, StringRecord)>,
}

/// Place of an error, and the error.
type At = (Place, Wrong);

impl Table {
    fn parse(text: &str) -> Result<Self, At> {
        let text = without_initial_blanks(text);
        let mut reader = ReaderBuilder::new().trim(Trim::All).flexible(true).from_reader(text.as_bytes());
        let broken = |error: ::csv::Error| {
            let line = error.position().map_or(1, ::csv::Position::line);
            (Place::line(line), Wrong::Csv(error.to_string()))
        };
        let header = reader.headers().map_err(broken)?.clone();
        for (at, name) in header.iter().enumerate() {
            if header.iter().take(at).any(|other| other == name) && !name.is_empty() {
                return Err((Place::line(1), Wrong::ColumnTwice(name.to_owned())));
            }
        }
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(broken)?;
            // A record begins where the one before it ended: at the empty lines between them.
            let begin = record.position().map_or(0, |position| position.byte() as usize);
            let empty =
                text.get(begin..).map_or(0, |rest| rest.len() - rest.trim_start_matches(['\r', '\n']).len());
            let line = Place::of_byte(&text, begin + empty).line;
            // pandas fills a short row, and takes no long one.
            if record.len() > header.len() {
                let cells = Wrong::Cells { found: record.len(), expected: header.len() };
                return Err((Place::line(line), cells));
            }
            // A line of blanks and commas is not a run.
            if record.iter().any(|cell| !cell.is_empty()) {
                rows.push((line, record));
            }
        }
        Ok(Self { header, rows })
    }

    fn column(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|column| column == name)
    }

    fn cell<'r>(&self, row: &'r StringRecord, name: &str) -> &'r str {
        let cell = self.column(name).and_then(|column| row.get(column)).unwrap_or_default();
        if is_missing(cell) { "" } else { cell }
    }
}

/// Reads a table.
///
/// # Errors
/// Where it is wrong.
pub(crate) fn read(text: &str, name: &str, here: &Path, beside: &Path) -> Result<Plan, At> {
    let table = Table::parse(text)?;
    if table.column("Workload").is_none() {
        return Err((Place::line(1), Wrong::NoColumn("Workload")));
    }
    // The first versions named the program in the column Model.
    let old = table.column("File").is_none() && table.column("Model").is_some();
    let file = if old { "Model" } else { "File" };
    if !old && table.column("File").is_none() {
        return Err((Place::line(1), Wrong::NoColumn("File")));
    }
    let mut remarks = Vec::new();
    for unknown in table.header.iter().filter(|name| !COLUMNS.contains(name) && *name != file) {
        remarks.push(format!(
            "the column {} is not used",
            if unknown.is_empty() { "without a name" } else { unknown }
        ));
    }
    let mut rows = Vec::new();
    for (number, (line, record)) in table.rows.iter().enumerate() {
        let at = |column: &'static str| Place { line: *line, column: Some(Column::Named(column)) };
        let whole = |column: &'static str, or: &str| match table.cell(record, column) {
            "" => Ok(or.to_owned()),
            text => integer(text).ok_or_else(|| (at(column), Wrong::Number(text.to_owned()))),
        };
        let program = table.cell(record, file);
        if program.is_empty() {
            return Err((at(file), Wrong::EmptyCell));
        }
        if table.cell(record, "Workload").is_empty() {
            return Err((at("Workload"), Wrong::EmptyCell));
        }
        rows.push(Row {
            experiment: whole("Experiment", "0")?,
            workload: whole("Workload", "0")?,
            name: table.cell(record, "Name").to_owned(),
            status: table.cell(record, "Status").to_owned(),
            devices: devices(table.cell(record, "Devices")).map_err(|what| (at("Devices"), what))?,
            collocation: collocation(table.cell(record, "Collocation"))
                .map_err(|what| (at("Collocation"), what))?,
            profiler: profiler(table.cell(record, "Listeners")).map_err(|what| (at("Listeners"), what))?,
            file: program.to_owned(),
            params: table.cell(record, "Params").to_owned(),
            number: Some(number),
        });
    }
    Ok(Plan { name: name.to_owned(), groups: groups(rows, here, beside), remarks, ..Plan::default() })
}

/// A whole number, also as pandas writes one in a column with holes.
fn integer(text: &str) -> Option<String> {
    let digits = text.strip_suffix(".0").unwrap_or(text);
    digits.parse::<i64>().ok().map(|number| number.to_string())
}

/// Blanks behind a comma are no part of the cell, and a quote may follow them.
fn without_initial_blanks(text: &str) -> String {
    let (mut quoted, mut starts) = (false, true);
    let mut kept = String::with_capacity(text.len());
    for character in text.chars() {
        if starts && matches!(character, ' ' | '\t') {
            continue;
        }
        if character == '"' && (starts || quoted) {
            quoted = !quoted;
        }
        starts = !quoted && matches!(character, ',' | '\n' | '\r');
        kept.push(character);
    }
    kept
}

/// The state of a run, as radT writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The run's row, from 0.
    pub row: usize,
    /// The column Status.
    pub status: String,
    /// The column Run.
    pub run: String,
}

/// Writes the columns Status and Run of a table. The file is replaced as a whole, and keeps its mode.
///
/// # Errors
/// [`SweepError::Changed`] if the table is no longer the one that was read: `of` is its text; or it cannot be written.
pub fn write_status(path: &Path, of: &str, statuses: &[Status]) -> Result<(), SweepError> {
    let io = |source| SweepError::Io { path: path.to_owned(), source };
    // A link stays one.
    let path = &fs::canonicalize(path).map_err(io)?;
    let now = fs::read_to_string(path).map_err(io)?;
    let changed = || SweepError::Changed(path.clone());
    let (Ok(table), Ok(old)) = (Table::parse(&now), Table::parse(of)) else { return Err(changed()) };
    if !is_same(&table, &old) {
        return Err(changed());
    }
    let mut header = table.header.clone();
    for name in ["Status", "Run"] {
        if table.column(name).is_none() {
            header.push_field(name);
        }
    }
    // As spreadsheets write it: what opened the file before opens it again.
    let mark = if now.starts_with('\u{feff}') { "\u{feff}" } else { "" };
    let end = if now.contains("\r\n") { csv::Terminator::CRLF } else { csv::Terminator::Any(b'\n') };
    let mut writer = WriterBuilder::new().terminator(end).from_writer(mark.as_bytes().to_vec());
    writer.write_record(&header)?;
    for (number, (_, record)) in table.rows.iter().enumerate() {
        let new = statuses.iter().find(|status| status.row == number);
        let cells = header.iter().enumerate().map(|(column, name)| match (name, new) {
            ("Status", Some(new)) => new.status.as_str(),
            ("Run", Some(new)) => new.run.as_str(),
            _ => record.get(column).unwrap_or_default(),
        });
        writer.write_record(cells)?;
    }
    let text = writer.into_inner().map_err(|error| io(error.into_error()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(folder).map_err(io)?;
    file.write_all(&text).map_err(io)?;
    let mode = fs::metadata(path).map_err(io)?.permissions();
    file.as_file().set_permissions(mode).map_err(io)?;
    file.as_file().sync_all().map_err(io)?;
    file.persist(path).map_err(|error| io(error.error))?;
    Ok(())
}

/// Returns true if two tables have the same runs.
fn is_same(a: &Table, b: &Table) -> bool {
    let own = |name: &str| !["Status", "Run"].contains(&name);
    let cells = |table: &Table, row: &StringRecord| -> Vec<(String, String)> {
        let names = table.header.iter().filter(|name| own(name));
        names.map(|name| (name.to_owned(), table.cell(row, name).to_owned())).collect()
    };
    a.rows.len() == b.rows.len()
        && a.rows.iter().zip(&b.rows).all(|((_, x), (_, y))| cells(a, x) == cells(b, y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Collocation, Stated};

    /// As radT's example of collocation is laid out: blanks around cells, workloads of two rows.
    const TABLE: &str = "\
Experiment,Workload,Status,Run,Devices,Collocation,    File,    Listeners,Params
         1,       1,      ,   ,      0,          -,train.py,smi+top,--batch-size 128
         1,       2,      ,   ,      0,        MPS,train.py,smi+top,--batch-size 128
         1,       2,      ,   ,      0,        MPS,train.py,smi+nsys,--batch-size 64
         1,       4,      ,   ,    2+3,    3g.20gb,train.py,smi+top,--batch-size 128
";

    fn plan(text: &str) -> Result<Plan, At> {
        read(text, "t", Path::new("/here"), Path::new("/here"))
    }

    #[test]
    fn a_table_becomes_workloads_whose_rows_start_together() {
        let plan = plan(TABLE).unwrap();
        let names: Vec<_> = plan.groups.iter().map(|group| (group.name.as_str(), group.runs.len())).collect();
        assert_eq!(names, [("1+1", 1), ("1+2", 2), ("1+4", 1)]);
        let first = &plan.groups[0].runs[0];
        assert_eq!(first.command, ["python3", "train.py", "--batch-size", "128"]);
        assert_eq!((first.directory.as_path(), first.row), (Path::new("/here/"), Some(0)));
        let pair = &plan.groups[1].runs;
        assert_eq!((&pair[0].collocation, pair[1].name.as_str()), (&Collocation::Mps, "1/2 0_B_MPS"));
        assert_eq!((pair[0].profiler, pair[1].profiler.is_some()), (None, true));
        assert_eq!(plan.groups[2].runs[0].devices, ["2", "3"]);
    }

    #[test]
    fn workloads_count_as_over_only_if_all_their_rows_do() {
        let table = |a: &str, b: &str| format!("Workload,Status,File\n1,{a},a.py\n1,{b},a.py\n");
        for (a, b, expected) in [
            ("", "", Stated::Open),
            ("FINISHED x (0_A)", "", Stated::Open),
            ("FINISHED x (0_A)", "FINISHED y (0_B)", Stated::Finished),
            ("FINISHED x (0_A)", "FAILED y (0_B)", Stated::Failed),
            ("RUNNING", "FAILED", Stated::Open),
        ] {
            assert_eq!(plan(&table(a, b)).unwrap().groups[0].stated, expected, "{a} {b}");
        }
    }

    #[test]
    fn a_wrong_table_is_reported_with_line_and_column() {
        for (text, expected) in [
            ("Experiment,File\n1,a.py\n", "line 1: there is no column Workload"),
            ("Workload\n1\n", "line 1: there is no column File"),
            ("Workload,File,File\n1,a,b\n", "line 1: the column File stands there twice"),
            ("Workload,File\n1,a.py\nx,a.py\n", "line 3, column Workload: `x` is not a whole number"),
            ("Workload,File\n,a.py\n", "line 2, column Workload: the cell is empty"),
            ("Workload,File\n1,\n", "line 2, column File: the cell is empty"),
            ("Workload,File\n1,a,b\n", "line 2: the row has 3 cells, the header 2"),
            (
                "Workload,Devices,File\n1,q,a\n",
                "line 2, column Devices: `q` names no GPU: write 0, 0+1 or a UUID",
            ),
            (
                "Workload,Collocation,File\n\n1,3g,a\n",
                "line 3, column Collocation: `3g` is no collocation: write -, MPS or a MIG profile such as 3g.20gb",
            ),
            ("Workload,Listeners,File\n1,smy,a\n", "line 2, column Listeners: there is no listener smy"),
        ] {
            let (place, wrong) = plan(text).unwrap_err();
            assert_eq!(format!("{place}: {wrong}"), expected);
        }
    }

    #[test]
    fn rows_of_pandas_and_of_older_versions_are_read() {
        let text = "Experiment,Workload,Status,Run,Devices,Collocation,Architecture,Model,Data,Listeners,Params\n\
                    2,21.0,FINISHED (0),92468ac7,0.0,nan,pytorch,p/cifar10.py,/raid,smi+top,batch-size=128\n";
        let plan = plan(text).unwrap();
        let run = &plan.groups[0].runs[0];
        assert_eq!(run.command, ["python3", "cifar10.py", "--batch-size=128"]);
        assert_eq!((run.directory.as_path(), plan.groups[0].name.as_str()), (Path::new("/here/p"), "2+21"));
        assert_eq!(plan.groups[0].stated, Stated::Finished);
        assert_eq!(plan.remarks, ["the column Architecture is not used", "the column Data is not used"]);
        let quoted = read("Workload,File,Params\n1,a.py, \"--x 1,2\"\n", "t", Path::new("/"), Path::new("/"));
        assert_eq!(quoted.unwrap().groups[0].runs[0].command, ["python3", "a.py", "--x", "1,2"]);
    }

    #[test]
    fn equal_workloads_are_repetitions_with_keys_of_their_own() {
        let plan = plan("Workload,File\n1,a.py\n2,a.py\n3,b.py\n").unwrap();
        let repetitions: Vec<_> = plan.groups.iter().map(|group| group.runs[0].repetition).collect();
        assert_eq!(repetitions, [1, 2, 1]);
        assert_ne!(plan.groups[0].keys(), plan.groups[1].keys());
    }

    #[test]
    fn the_status_is_written_and_all_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        let text = "Workload,Own,File\n1,\"a, b\",a.py\n2,,b.py\n";
        fs::write(&path, text).unwrap();
        let done = Status { row: 1, status: "FINISHED b (0)".into(), run: "42".into() };
        write_status(&path, text, std::slice::from_ref(&done)).unwrap();
        let written = fs::read_to_string(&path).unwrap();
        assert_eq!(written, "Workload,Own,File,Status,Run\n1,\"a, b\",a.py,,\n2,,b.py,FINISHED b (0),42\n");
        // The second time the columns are there, and the text that was read is an older one.
        let first = Status { row: 0, status: "FAILED a (0)".into(), run: "41".into() };
        write_status(&path, text, &[first]).unwrap();
        assert!(
            fs::read_to_string(&path).unwrap().contains("a.py,FAILED a (0),41\n2,,b.py,FINISHED b (0),42")
        );
        // A spreadsheet's mark and ends of lines.
        fs::write(&path, "\u{feff}Workload,Own,File\r\n1,\"a, b\",a.py\r\n2,,b.py\r\n").unwrap();
        write_status(&path, text, std::slice::from_ref(&done)).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "\u{feff}Workload,Own,File,Status,Run\r\n1,\"a, b\",a.py,,\r\n2,,b.py,FINISHED b (0),42\r\n"
        );
        fs::write(&path, "Workload,Own,File\n1,changed,a.py\n2,,b.py\n").unwrap();
        assert!(matches!(write_status(&path, text, &[done]), Err(SweepError::Changed(_))));
        assert!(fs::read_to_string(&path).unwrap().contains("changed"));
    }
}
