//! Published figures, their sources, and reasons of differences: the files in bench/published.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use xtask::shell;
use xtask::venv::Environment;

/// Folder of the tables and programs.
pub(super) const FOLDER: &str = "bench/published";

/// Python environments by the name that rows use.
pub(super) const STACKS: [(&str, Environment); 2] = [
    (
        "torch-2.15",
        Environment::new(
            "published/torch-2.15",
            "bench/published/requirements-torch-2.15.txt",
            &["--no-deps"],
        ),
    ),
    (
        "torch-2.7",
        Environment::new("published/torch-2.7", "bench/published/requirements-torch-2.7.txt", &["--no-deps"]),
    ),
];

/// Document with published figures.
#[derive(Debug, PartialEq)]
pub(super) struct Source {
    /// Repository and file, or address of the page.
    pub(super) address: String,
    pub(super) gpu: String,
    /// Software as the document states it.
    pub(super) stack: String,
}

/// Memory figures that differ from each other: only equal ones are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    /// `max_memory_allocated`.
    Allocated,
    /// `max_memory_reserved`.
    Reserved,
    /// Peak of `active_bytes`: allocated, and freed blocks that a stream still uses.
    Active,
    /// `nvidia-smi`, which counts the context.
    Smi,
}

impl Quantity {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Reserved => "reserved",
            Self::Active => "active",
            Self::Smi => "nvidia-smi",
        }
    }

    pub(super) fn parse(name: &str) -> Result<Self> {
        [Self::Allocated, Self::Reserved, Self::Active, Self::Smi]
            .into_iter()
            .find(|quantity| quantity.name() == name)
            .with_context(|| format!("no such quantity: {name}"))
    }
}

/// Published figure, and the dry run that is compared with it.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) source: String,
    /// Emulated card.
    pub(super) card: String,
    /// Name of an environment in [`STACKS`].
    pub(super) stack: String,
    /// Script in bench/published with its arguments; assignments before it are environment variables, and words that
    /// begin with two dashes before it are options of `radrm-run`.
    pub(super) program: String,
    /// Label of the figure among those that the program prints.
    pub(super) case: String,
    pub(super) quantity: Quantity,
    /// As published, in `unit`.
    pub(super) published: f64,
    pub(super) unit: String,
    pub(super) configuration: String,
    /// Choice that was made after a figure was seen; empty if none was.
    pub(super) after: String,
}

impl Row {
    /// Published figure, bytes.
    pub(super) fn bytes(&self) -> f64 {
        self.published * unit(&self.unit).unwrap_or(1.0)
    }

    /// Returns true if both figures are of the same dry run.
    pub(super) fn same_run(&self, other: &Row) -> bool {
        (&self.card, &self.stack, &self.program) == (&other.card, &other.stack, &other.program)
    }

    /// Script of the program.
    pub(super) fn script(&self) -> Result<&str> {
        self.program
            .split_whitespace()
            .find(|word| word.ends_with(".py"))
            .with_context(|| format!("{}: no script in \"{}\"", self.id, self.program))
    }
}

/// Bytes of a unit.
fn unit(name: &str) -> Option<f64> {
    Some(match name {
        "B" => 1.0,
        "MB" => 1e6,
        "GB" => 1e9,
        "MiB" => f64::from(1 << 20),
        "GiB" => f64::from(1 << 30),
        _ => return None,
    })
}

/// All figures with their sources.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) rows: Vec<Row>,
    pub(super) sources: BTreeMap<String, Source>,
    /// Beginning of names of figures, and the mechanism of their difference.
    pub(super) reasons: Vec<(String, String)>,
}

impl Table {
    /// # Errors
    /// A file is missing or has a wrong line.
    pub(super) fn load() -> Result<Self> {
        let folder = shell::root().join(FOLDER);
        let read =
            |name: &str| fs::read_to_string(folder.join(name)).with_context(|| format!("{FOLDER}/{name}"));
        Self::parse(&read("rows.tsv")?, &read("sources.tsv")?, &read("reasons.tsv")?)
    }

    fn parse(rows: &str, sources: &str, reasons: &str) -> Result<Self> {
        let sources = fields(sources)
            .map(|line| match line[..] {
                [name, address, gpu, stack] => Ok((
                    name.to_owned(),
                    Source { address: address.to_owned(), gpu: gpu.to_owned(), stack: stack.to_owned() },
                )),
                _ => bail!("sources.tsv: not four fields: {line:?}"),
            })
            .collect::<Result<BTreeMap<_, _>>>()?;
        let rows = fields(rows).map(|line| row(&line)).collect::<Result<Vec<_>>>()?;
        let reasons = fields(reasons)
            .map(|line| match line[..] {
                [names, reason] => Ok((names.to_owned(), reason.to_owned())),
                _ => bail!("reasons.tsv: not two fields: {line:?}"),
            })
            .collect::<Result<Vec<_>>>()?;
        for row in &rows {
            if !sources.contains_key(&row.source) {
                bail!("rows.tsv: {} has no source", row.id);
            }
            if !STACKS.iter().any(|(name, _)| *name == row.stack) {
                bail!("rows.tsv: {}: no stack {}", row.id, row.stack);
            }
            row.script()?;
        }
        Ok(Self { rows, sources, reasons })
    }
}

fn fields(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split('\t').collect())
}

fn row(line: &[&str]) -> Result<Row> {
    let [id, kind, source, card, stack, program, case, quantity, published, unit_name, configuration, after] =
        line[..]
    else {
        bail!("rows.tsv: not twelve fields: {line:?}")
    };
    if unit(unit_name).is_none() {
        bail!("rows.tsv: {id}: no unit {unit_name}");
    }
    Ok(Row {
        id: id.to_owned(),
        kind: kind.to_owned(),
        source: source.to_owned(),
        card: card.to_owned(),
        stack: stack.to_owned(),
        program: program.to_owned(),
        case: case.to_owned(),
        quantity: Quantity::parse(quantity).with_context(|| format!("rows.tsv: {id}"))?,
        published: published.parse().with_context(|| format!("rows.tsv: {id}: {published}"))?,
        unit: unit_name.to_owned(),
        configuration: configuration.to_owned(),
        after: after.to_owned(),
    })
}

/// Digests of what a result depends on: program, script, requirements.
pub(super) struct Digests {
    stacks: HashMap<&'static str, Vec<u8>>,
    scripts: HashMap<PathBuf, Vec<u8>>,
}

impl Digests {
    /// # Errors
    /// Requirements of a stack are missing.
    pub(super) fn load() -> Result<Self> {
        let mut stacks = HashMap::new();
        for (name, _) in &STACKS {
            let file = format!("{FOLDER}/requirements-{name}.txt");
            stacks.insert(*name, fs::read(shell::root().join(&file)).context(file)?);
        }
        Ok(Self { stacks, scripts: HashMap::new() })
    }

    /// # Errors
    /// The script cannot be read.
    pub(super) fn of(&mut self, row: &Row) -> Result<String> {
        let script = shell::root().join(FOLDER).join(row.script()?);
        let mut hash = Sha256::new();
        for part in [&row.card, &row.stack, &row.program] {
            hash.update(part);
            hash.update([0]);
        }
        hash.update(&self.stacks[row.stack.as_str()]);
        hash.update(self.script(&script)?);
        Ok(hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }

    fn script(&mut self, file: &Path) -> Result<&[u8]> {
        if !self.scripts.contains_key(file) {
            let text = fs::read(file).with_context(|| file.display().to_string())?;
            self.scripts.insert(file.to_path_buf(), text);
        }
        Ok(&self.scripts[file])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCES: &str = "# name\taddress\tgpu\tstack\ns\trepository, file\tA100\ttorch 2.1\n";

    fn line(changed: usize, with: &str) -> String {
        let mut fields = [
            "a",
            "lora",
            "s",
            "A100-40GB",
            "torch-2.15",
            "X=1 --steps 2 litgpt.py lora",
            "-",
            "allocated",
            "4.82",
            "GB",
            "batch 1",
            "",
        ];
        if changed < fields.len() {
            fields[changed] = with;
        }
        fields.join("\t")
    }

    #[test]
    fn units_are_those_of_the_source() {
        let table = Table::parse(&line(12, ""), SOURCES, "").unwrap();
        assert!((table.rows[0].bytes() - 4.82e9).abs() < 1.0);
        let table = Table::parse(&line(9, "GiB"), SOURCES, "").unwrap();
        assert!((table.rows[0].bytes() - 4.82 * 1_073_741_824.0).abs() < 1.0);
        assert_eq!(table.rows[0].script().unwrap(), "litgpt.py");
        assert_eq!(table.sources["s"].gpu, "A100");
    }

    #[test]
    fn a_wrong_line_is_an_error_that_names_the_figure() {
        for (field, with) in [(2, "t"), (4, "torch-1"), (5, "litgpt"), (7, "memory"), (8, "4,82"), (9, "Gb")]
        {
            let error = Table::parse(&line(field, with), SOURCES, "").unwrap_err();
            assert!(format!("{error:#}").contains('a'), "{error:#}");
        }
        assert!(Table::parse("a\tb", SOURCES, "").is_err());
        assert!(Table::parse("", "a\tb", "").is_err());
        assert!(Table::parse("", "", "a").is_err());
    }

    #[test]
    fn requirements_have_what_the_programs_import() {
        // Python's own, and the module beside the programs.
        const OWN: [&str; 7] = ["argparse", "figures", "functools", "gc", "importlib", "sys", "types"];
        let folder = shell::root().join(FOLDER);
        let required =
            |stack: &str| fs::read_to_string(folder.join(format!("requirements-{stack}.txt"))).unwrap();
        let pins = |text: &str, package: &str| text.lines().any(|line| line.starts_with(package));
        let all: String = STACKS.iter().map(|(stack, _)| required(stack)).collect();
        for row in Table::load().unwrap().rows {
            let own = required(&row.stack);
            assert!(pins(&own, &row.stack.replace('-', "==")), "{}", row.stack);
            let script = row.script().unwrap();
            for line in fs::read_to_string(folder.join(script)).unwrap().lines() {
                let words = line.trim_start();
                let Some(names) = words.strip_prefix("import ").or_else(|| words.strip_prefix("from "))
                else {
                    continue;
                };
                let module = names.split([' ', '.']).next().unwrap();
                // What a function imports is needed by the stack that calls it alone.
                let text = if words.len() == line.len() { &own } else { &all };
                assert!(OWN.contains(&module) || pins(text, &format!("{module}==")), "{script}: {module}");
            }
        }
    }

    #[test]
    fn figures_have_names_of_their_own_and_scripts_that_exist() {
        let table = Table::load().unwrap();
        let folder = shell::root().join(FOLDER);
        let mut names: Vec<&str> = table.rows.iter().map(|row| row.id.as_str()).collect();
        names.sort_unstable();
        names.windows(2).for_each(|pair| assert_ne!(pair[0], pair[1]));
        for row in &table.rows {
            assert!(folder.join(row.script().unwrap()).is_file(), "{}", row.program);
            assert!(row.published > 0.0);
        }
        for (beginning, _) in &table.reasons {
            assert!(names.iter().any(|name| name.starts_with(beginning.as_str())), "{beginning}");
        }
        for source in table.sources.keys() {
            assert!(table.rows.iter().any(|row| row.source == *source), "{source} has no figure");
        }
    }

    #[test]
    fn a_changed_program_has_another_digest() {
        let first = Table::load().unwrap();
        let mut known = Digests::load().unwrap();
        let (one, other) =
            (&first.rows[0], first.rows.iter().find(|row| !row.same_run(&first.rows[0])).unwrap());
        assert_eq!(known.of(one).unwrap(), known.of(one).unwrap());
        assert_ne!(known.of(one).unwrap(), known.of(other).unwrap());
    }
}
