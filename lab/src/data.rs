//! Measurements as text: the forms in which they are published, and that of a site's own runs.

use std::collections::BTreeMap;

use csv::{ReaderBuilder, StringRecord};

use radrm_estimator::memory::{Network, Program, Run, Shape, Tensors};

use crate::estimated::{Estimated, read_estimated};
use crate::kace::{KacePair, PartitionedSet, read_pairs, read_partitions};

/// Measurements in a text.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Programs with runs at several batch sizes; bytes.
    Programs(Vec<Program>),
    /// Networks, each measured once.
    Networks(Vec<Network>),
    /// Pairs of workloads that shared a GPU, with KACE's metrics.
    Pairs(Vec<KacePair>),
    /// Pairs or triples of workloads that shared a GPU, by the parts of it that they had.
    Partitions(Vec<PartitionedSet>),
    /// Real models with published estimates.
    Estimated(Vec<Estimated>),
}

/// Reason that a text has no measurements.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// Not CSV.
    #[error("{0}")]
    Csv(#[from] csv::Error),
    /// No known columns.
    #[error("its columns are not known: runs have program,batch,peak_mib, and optionally family,dry_run_mib")]
    Unknown,
    /// A value is wrong.
    #[error("line {line}: {column} is \"{value}\", which is not a number above 0")]
    Value {
        /// Counted from 1.
        line: u64,
        /// The column's name.
        column: &'static str,
        /// Text that stands there.
        value: String,
    },
    /// No row can be used.
    #[error("no measured run is in it")]
    Empty,
}

const MIB: f64 = 1_048_576.0;

/// Rows with named columns.
struct Table {
    head: StringRecord,
    rows: Vec<StringRecord>,
}

impl Table {
    fn read(text: &str) -> Result<Self, DataError> {
        let mut reader = ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
        let head = reader.headers()?.clone();
        Ok(Self { head, rows: reader.records().collect::<Result<_, _>>()? })
    }

    fn at(&self, column: &str) -> Option<usize> {
        self.head.iter().position(|name| name == column)
    }

    fn has(&self, columns: &[&str]) -> bool {
        columns.iter().all(|column| self.at(column).is_some())
    }

    fn text<'a>(&self, row: &'a StringRecord, column: &str) -> &'a str {
        self.at(column).and_then(|at| row.get(at)).unwrap_or_default()
    }

    /// A number above 0.
    fn number(&self, row: &StringRecord, column: &'static str) -> Result<f64, DataError> {
        let value = self.text(row, column);
        match value.parse::<f64>() {
            Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
            _ => {
                let line = row.position().map_or(0, csv::Position::line);
                Err(DataError::Value { line, column, value: value.to_owned() })
            }
        }
    }

    /// One that may be missing.
    fn some(&self, row: &StringRecord, column: &'static str) -> Result<Option<f64>, DataError> {
        if self.text(row, column).is_empty() { Ok(None) } else { self.number(row, column).map(Some) }
    }
}

/// Reads measurements: the form is known by the columns.
///
/// # Errors
/// [`DataError`]: no known form, or what is wrong with a value.
pub fn read(text: &str) -> Result<Data, DataError> {
    let table = Table::read(text)?;
    if table.has(&["Activations-Params", "Total Activations", "Total Parameters", "Batch Size", NETWORK_PEAK])
    {
        let networks = networks(&table);
        return if networks.is_empty() { Err(DataError::Empty) } else { Ok(Data::Networks(networks)) };
    }
    if let Some(pairs) = read_pairs(&table.head, table.rows.iter()) {
        return if pairs.is_empty() { Err(DataError::Empty) } else { Ok(Data::Pairs(pairs)) };
    }
    if let Some(models) = read_estimated(&table.head, table.rows.iter()) {
        return if models.is_empty() { Err(DataError::Empty) } else { Ok(Data::Estimated(models)) };
    }
    if let Some(sets) = read_partitions(&table.head, table.rows.iter()) {
        return if sets.is_empty() { Err(DataError::Empty) } else { Ok(Data::Partitions(sets)) };
    }
    let programs = if table.has(&["model", "bs", "mem", "fwd", "bwd", "ft"]) {
        timm(&table)?
    } else if table.has(&["program", "batch", "peak_mib"]) {
        runs(&table)?
    } else {
        return Err(DataError::Unknown);
    };
    if programs.is_empty() {
        return Err(DataError::Empty);
    }
    Ok(Data::Programs(programs))
}

const NETWORK_PEAK: &str = "Max GPU Memory (MiB)";

/// GPUMemNet's networks. Those that ran out of memory or have no figure are dropped. The family is the architecture, of
/// multilayer perceptrons with the activation function.
fn networks(table: &Table) -> Vec<Network> {
    let mut networks = Vec::new();
    for row in &table.rows {
        let status = table.text(row, "Status");
        let of = |column| table.number(row, column);
        let figures = (of(NETWORK_PEAK), of("Total Activations"), of("Total Parameters"), of("Batch Size"));
        // A network whose layers were not recorded has none.
        let (Ok(peak), Ok(activations), Ok(parameters), Ok(batch)) = figures else { continue };
        if !status.is_empty() && status != "SUCCESSFUL" {
            continue;
        }
        let mut shape = Shape::default();
        // A list of ('kind', activations, parameters).
        for layer in table.text(row, "Activations-Params").split('(').skip(1) {
            let mut parts = layer.split([',', ')']).map(|part| part.trim().trim_matches('\''));
            let kind = parts.next().unwrap_or_default();
            let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok()).unwrap_or(0);
            let (outputs, weights) = (number(), number());
            shape.add(kind, outputs, weights);
        }
        let name = table.text(row, "Filename");
        let arch = name.split("arch:").nth(1).and_then(|rest| rest.split('_').next()).unwrap_or_default();
        let activation = table.text(row, "Activation Function").to_owned();
        let family = if shape.conv == 0 { format!("{arch} {activation}") } else { arch.to_owned() };
        networks.push(Network {
            family,
            activation,
            shape,
            parameters,
            activations,
            batch,
            peak: MIB * peak,
        });
    }
    networks
}

/// Runs as a site writes them: of equal ones the highest peak counts.
fn runs(table: &Table) -> Result<Vec<Program>, DataError> {
    let mut programs: BTreeMap<&str, Program> = BTreeMap::new();
    for row in &table.rows {
        let name = table.text(row, "program");
        let (batch, peak) = (table.number(row, "batch")?, MIB * table.number(row, "peak_mib")?);
        let dry_run = table.some(row, "dry_run_mib")?.map(|mib| MIB * mib);
        let family = Some(table.text(row, "family")).filter(|family| !family.is_empty());
        let program = programs.entry(name).or_default();
        (program.name, program.family) = (name.to_owned(), family.unwrap_or(name).to_owned());
        program.add(Run { batch, peak, tensors: None, dry_run });
    }
    Ok(programs.into_values().collect())
}

/// TIMM models with FakeTensor's figures, as GPUMemNet publishes them. Runs that crashed are dropped: FakeTensor's total is
/// above 40,000 MB, or less memory than at a smaller batch size.
fn timm(table: &Table) -> Result<Vec<Program>, DataError> {
    let mut models: BTreeMap<&str, Program> = BTreeMap::new();
    for row in &table.rows {
        let of = |column| table.number(row, column).map(|mib| MIB * mib);
        let name = table.text(row, "model");
        // No figure stands for a run that failed.
        let (Ok(peak), Ok(forward), Ok(backward), Ok(total)) = (of("mem"), of("fwd"), of("bwd"), of("ft"))
        else {
            continue;
        };
        let tensors = Some(Tensors { forward, backward, total });
        let program = models.entry(name).or_default();
        (program.name, program.family) = (name.to_owned(), family(name));
        program.runs.push(Run { batch: table.number(row, "bs")?, peak, tensors, dry_run: None });
    }
    let mut programs: Vec<Program> = models.into_values().collect();
    for program in &mut programs {
        program.runs.sort_by(|a, b| a.batch.total_cmp(&b.batch));
        let mut highest = 0.0f64;
        program.runs.retain(|run| {
            let crashed = run.tensors.is_some_and(|tensors| tensors.total > 40_000.0 * MIB);
            let kept = !crashed && run.peak >= highest;
            highest = highest.max(run.peak);
            kept
        });
    }
    programs.retain(|program| !program.runs.is_empty());
    Ok(programs)
}

/// Programs of one design: names that share a root, else the letters that a name begins with.
fn family(model: &str) -> String {
    const ROOTS: [&str; 30] = [
        "efficientnet",
        "efficientvit",
        "mobilenet",
        "mobilevit",
        "mobileone",
        "convnext",
        "coatnet",
        "maxvit",
        "maxxvit",
        "resnest",
        "resnet",
        "resnext",
        "regnet",
        "ghostnet",
        "darknet",
        "botnet",
        "swin",
        "levit",
        "deit",
        "beit",
        "caformer",
        "convformer",
        "poolformer",
        "mixer",
        "mlp",
        "nfnet",
        "repvgg",
        "vgg",
        "inception",
        "vit",
    ];
    if let Some(root) = ROOTS.iter().find(|root| model.contains(*root)) {
        // Variants of one block.
        return match *root {
            "resnext" | "resnet" | "botnet" => "resnet".into(),
            "maxxvit" | "maxvit" | "coatnet" => "coatnet".into(),
            "deit" | "beit" | "vit" => "vit".into(),
            "repvgg" | "vgg" => "vgg".into(),
            "caformer" | "convformer" | "poolformer" => "metaformer".into(),
            "mixer" | "mlp" => "mlp".into(),
            other => other.into(),
        };
    }
    let bare =
        ["tf_", "legacy_", "gluon_"].iter().find_map(|prefix| model.strip_prefix(prefix)).unwrap_or(model);
    bare.chars().take_while(char::is_ascii_alphabetic).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_site_are_read() {
        let text = "program,batch,peak_mib,dry_run_mib\na,8,100,\na,8,120,90\na,16,200,\nb,8,50,40\n";
        let Ok(Data::Programs(programs)) = read(text) else { panic!("programs") };
        assert_eq!(programs.len(), 2);
        let [first, second] = programs[0].runs[..] else { panic!("{programs:?}") };
        assert_eq!((first.peak, first.dry_run, second.batch), (120.0 * MIB, Some(90.0 * MIB), 16.0));
        assert_eq!(programs[1].family, "b");
    }

    #[test]
    fn crashed_runs_are_dropped() {
        let text = "model,bs,mem,fwd,bwd,ft\nvit_a,8,4000,1,2,3\nvit_a,16,3000,1,2,4\nvit_a,32,9000,1,2,50000\nx,8,0,1,2,3\n";
        let Ok(Data::Programs(programs)) = read(text) else { panic!("programs") };
        assert_eq!((programs.len(), programs[0].runs.len(), programs[0].family.as_str()), (1, 1, "vit"));
    }

    #[test]
    fn networks_are_read_layer_by_layer() {
        let text = "Filename,Activations-Params,Activation Function,Total Activations,Total Parameters,Batch Size,Max GPU Memory (MiB),Status\n\
             a:1_arch:uniform_b:2,\"[('conv2d', 20, 7), ('GELU', 20, 0), ('linear', 3, 9)]\",GELU,43,16,8,2000,SUCCESSFUL\n\
             a:1_arch:dense_b:2,\"[('linear', 3, 9)]\",ReLU,3,9,8,1500,SUCCESSFUL\n\
             a:1_arch:dense_b:2,\"[('linear', 3, 9)]\",ReLU,3,9,8,40000,OOM_CRASH\n";
        let Ok(Data::Networks(networks)) = read(text) else { panic!("networks") };
        let shape = networks[0].shape;
        assert_eq!(
            (shape.depth, shape.conv, shape.linear, shape.largest, shape.convolved),
            (3, 1, 1, 20, 20)
        );
        assert_eq!(
            (networks.len(), networks[0].family.as_str(), networks[1].family.as_str()),
            (2, "uniform", "dense ReLU")
        );
        assert_eq!((networks[0].peak, shape.largest_parameters), (2000.0 * MIB, 9));
    }

    #[test]
    fn wrong_texts_are_refused_in_one_sentence() {
        for (text, part) in [
            ("", "columns are not known"),
            ("a,b\n1,2\n", "columns are not known"),
            ("program,batch,peak_mib\n", "no measured run"),
            ("program,batch,peak_mib\na,8,x\n", "line 2: peak_mib is \"x\""),
            ("program,batch,peak_mib\na,-8,1\n", "batch is \"-8\""),
            ("program,batch,peak_mib\na,8,1e999\n", "peak_mib"),
            ("program,batch,peak_mib\na,8\n", "found record"),
        ] {
            let why = read(text).unwrap_err().to_string();
            assert!(why.contains(part) && why.lines().count() == 1, "{text}: {why}");
        }
    }
}
