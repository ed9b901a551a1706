//! Runs as tables, for pandas, polars and spreadsheets.

use std::collections::BTreeSet;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, TimestampType, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use radrm_text::csv_cell;
use thiserror::Error;

use crate::figure::Extent;
use crate::run::{Curve, Run};

/// Columns of equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table(Vec<Column>);

#[derive(Clone, Debug, PartialEq)]
struct Column {
    name: String,
    cells: Cells,
}

/// Cells of one type; `None` is not known.
#[derive(Clone, Debug, PartialEq)]
enum Cells {
    Text(Vec<Option<String>>),
    /// ms since 1970.
    Time(Vec<Option<u64>>),
    Index(Vec<Option<u8>>),
    Number(Vec<Option<f64>>),
}

/// A table cannot be written.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum TableError {
    #[error("the table cannot be written: {0}")]
    Csv(#[from] csv::Error),
    #[error("the table cannot be written: {0}")]
    Parquet(#[from] ParquetError),
}

impl Table {
    /// One row for each run: who and when, then parameters (`param.`), tags (`tag.`), what the program logged (`metric.`), and the
    /// figures of the whole run. Parameters and tags that are numbers in all runs are numbers.
    #[must_use]
    pub fn of_runs(runs: &[Run]) -> Self {
        let text = |get: &dyn Fn(&Run) -> Option<String>| Cells::Text(runs.iter().map(get).collect());
        let time = |get: fn(&Run) -> u64| Cells::Time(runs.iter().map(get).map(Some).collect());
        let mut table = Self::default();
        table.add("run", text(&|run| Some(run.id.clone())));
        table.add("name", text(&|run| Some(run.name.clone())));
        table.add("user", text(&|run| run.user.clone()));
        table.add("started", time(|run| run.started_ms));
        table.add("ended", time(|run| run.ended_ms));
        table.add("end", text(&|run| Some(run.end.word().to_owned())));
        for name in runs.iter().flat_map(|run| run.params.keys()).collect::<BTreeSet<_>>() {
            table.add(&format!("param.{name}"), typed(runs.iter().map(|run| run.params.get(name)).collect()));
        }
        for name in runs.iter().flat_map(|run| run.tags.keys()).collect::<BTreeSet<_>>() {
            table.add(&format!("tag.{name}"), typed(runs.iter().map(|run| run.tags.get(name)).collect()));
        }
        for name in runs.iter().flat_map(|run| run.metrics.keys()).collect::<BTreeSet<_>>() {
            let last = |run: &Run| run.metrics.get(name).map(|metric| metric.last);
            table.add(&format!("metric.{name}"), Cells::Number(runs.iter().map(last).collect()));
        }
        let figures = |run: &Run| -> Vec<(String, f64)> {
            let of_run = run.curves.iter().filter(|curve| curve.figure.extent == Extent::Run);
            of_run.filter_map(|curve| Some((curve.name(), scaled(curve).last()?.1))).collect()
        };
        let figures: Vec<_> = runs.iter().map(figures).collect();
        for name in figures.iter().flatten().map(|(name, _)| name).collect::<BTreeSet<_>>() {
            let of = |run: &Vec<(String, f64)>| run.iter().find(|(key, _)| key == name).map(|found| found.1);
            table.add(name, Cells::Number(figures.iter().map(of).collect()));
        }
        table
    }

    /// One row for each point of a curve: whose, which, when, and its value.
    #[must_use]
    pub fn of_curves(runs: &[Run]) -> Self {
        let (mut ids, mut names, mut gpus) = (Vec::new(), Vec::new(), Vec::new());
        let (mut times, mut seconds, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for run in runs {
            for curve in run.curves.iter().filter(|curve| curve.figure.extent == Extent::Moment) {
                let name = curve.name();
                for (at, value) in scaled(curve) {
                    ids.push(Some(run.id.clone()));
                    names.push(Some(name.clone()));
                    gpus.push(curve.gpu);
                    times.push(Some(at));
                    seconds.push(Some(at.saturating_sub(run.started_ms) as f64 / 1000.0));
                    values.push(Some(value));
                }
            }
        }
        let mut table = Self::default();
        table.add("run", Cells::Text(ids));
        table.add("figure", Cells::Text(names));
        table.add("gpu", Cells::Index(gpus));
        table.add("time", Cells::Time(times));
        table.add("seconds", Cells::Number(seconds));
        table.add("value", Cells::Number(values));
        table
    }

    fn add(&mut self, name: &str, cells: Cells) {
        self.0.push(Column { name: name.to_owned(), cells });
    }

    fn rows(&self) -> usize {
        self.0.first().map_or(0, |column| column.cells.len())
    }

    /// As CSV (RFC 4180): a line of names, then a line for each row. What is not known is empty, times are UTC.
    ///
    /// # Errors
    /// A line cannot be made.
    pub fn csv(&self) -> Result<Vec<u8>, TableError> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(self.0.iter().map(|column| csv_cell(&column.name).into_owned()))?;
        for row in 0..self.rows() {
            writer.write_record(self.0.iter().map(|column| column.cells.shown(row)))?;
        }
        writer.into_inner().map_err(|error| csv::Error::from(error.into_error()).into())
    }

    /// As a file of Apache Parquet, with one row group. Times are timestamps in ms of UTC.
    ///
    /// # Errors
    /// A column cannot be encoded.
    pub fn parquet(&self) -> Result<Vec<u8>, TableError> {
        let columns = self.0.iter().map(|column| column.cells.parquet_type(&column.name).map(Into::into));
        let columns = columns.collect::<Result<_, ParquetError>>()?;
        let schema = Type::group_type_builder("radrm").with_fields(columns).build()?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let mut bytes = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut bytes, schema.into(), properties.into())?;
        let mut group = writer.next_row_group()?;
        for column in &self.0 {
            match &column.cells {
                Cells::Text(cells) => {
                    write::<ByteArrayType, _>(&mut group, cells, |text| ByteArray::from(text.as_str()))
                }
                Cells::Time(cells) => {
                    write::<Int64Type, _>(&mut group, cells, |ms| i64::try_from(*ms).unwrap_or(i64::MAX))
                }
                Cells::Index(cells) => write::<Int32Type, _>(&mut group, cells, |index| i32::from(*index)),
                Cells::Number(cells) => write::<DoubleType, _>(&mut group, cells, |number| *number),
            }?;
        }
        group.close()?;
        writer.close()?;
        Ok(bytes)
    }
}

/// Digits of a number that a double keeps.
const MAX_DIGITS: usize = 15;

/// Texts, as numbers if all of them are.
fn typed(texts: Vec<Option<&String>>) -> Cells {
    let number = |text: &String| {
        // Neither words such as `infinity` nor identifiers that would lose digits or zeros in front.
        let digits = text.trim_start_matches('-');
        let is_plain = digits.starts_with(|first: char| first.is_ascii_digit())
            && digits.bytes().filter(u8::is_ascii_digit).count() <= MAX_DIGITS
            && !digits
                .strip_prefix('0')
                .is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit()));
        text.parse::<f64>().ok().filter(|number| is_plain && number.is_finite())
    };
    let numbers: Option<Vec<Option<f64>>> =
        texts.iter().map(|text| text.map_or(Some(None), |text| number(text).map(Some))).collect();
    numbers.map_or_else(
        || Cells::Text(texts.into_iter().map(Option::<&String>::cloned).collect()),
        Cells::Number,
    )
}

/// The points in the unit that the curve's name states.
fn scaled(curve: &Curve) -> impl DoubleEndedIterator<Item = (u64, f64)> {
    curve.points.iter().map(|(at, value)| (*at, curve.figure.scale.of(*value)))
}

impl Cells {
    fn len(&self) -> usize {
        match self {
            Self::Text(cells) => cells.len(),
            Self::Time(cells) => cells.len(),
            Self::Index(cells) => cells.len(),
            Self::Number(cells) => cells.len(),
        }
    }

    fn shown(&self, row: usize) -> String {
        fn of<T>(cells: &[Option<T>], row: usize, show: impl Fn(&T) -> String) -> String {
            cells.get(row).and_then(Option::as_ref).map(show).unwrap_or_default()
        }
        match self {
            Self::Text(cells) => of(cells, row, |text| csv_cell(text).into_owned()),
            Self::Time(cells) => of(cells, row, |ms| {
                let seconds = radrm_base::calendar::utc(ms.saturating_mul(1_000_000));
                format!("{}.{:03}Z", seconds.replace(' ', "T"), ms % 1000)
            }),
            Self::Index(cells) => of(cells, row, u8::to_string),
            Self::Number(cells) => of(cells, row, f64::to_string),
        }
    }

    fn parquet_type(&self, name: &str) -> Result<Type, ParquetError> {
        let (physical, logical) = match self {
            Self::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Self::Time(_) => {
                let of = TimestampType { is_adjusted_to_u_t_c: true, unit: TimeUnit::MILLIS };
                (Physical::INT64, Some(LogicalType::Timestamp(of)))
            }
            Self::Index(_) => (Physical::INT32, None),
            Self::Number(_) => (Physical::DOUBLE, None),
        };
        let builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
        builder.with_logical_type(logical).build()
    }
}

fn write<T: DataType, C>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    cells: &[Option<C>],
    value: impl Fn(&C) -> T::T,
) -> Result<(), ParquetError> {
    let known: Vec<i16> = cells.iter().map(|cell| cell.is_some().into()).collect();
    let values: Vec<T::T> = cells.iter().flatten().map(value).collect();
    let missing = || ParquetError::General("a column more than the schema has".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(&values, Some(&known), None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;
    use crate::figure;
    use crate::run::{End, Metric};

    fn runs() -> Vec<Run> {
        let run = |id: &str, user: Option<&str>, batch: &str, curves| Run {
            id: id.into(),
            name: "a,\"b\"".into(),
            user: user.map(str::to_owned),
            started_ms: 1_700_000_000_123,
            ended_ms: 1_700_000_004_000,
            end: End::Failed,
            params: BTreeMap::from([("batch".into(), batch.into())]),
            tags: BTreeMap::new(),
            curves,
            gpus: Vec::new(),
            metrics: BTreeMap::new(),
        };
        let curve = |figure, gpu, points: &[(u64, f64)]| Curve { figure, gpu, points: points.to_vec() };
        vec![
            run("1", Some("ada"), "8", vec![curve(&figure::RUN_TIME, None, &[(1_700_000_004_000, 3.5)])]),
            run(
                "2",
                None,
                "16",
                vec![
                    curve(&figure::PEAK, Some(1), &[(1_700_000_004_000, 2e9)]),
                    curve(&figure::MEMORY, Some(1), &[(1_700_000_001_123, 1e9), (1_700_000_002_123, 2e9)]),
                ],
            ),
        ]
    }

    #[test]
    fn what_is_not_known_of_a_run_is_empty_and_words_are_quoted() {
        let text = String::from_utf8(Table::of_runs(&runs()).csv().unwrap()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "run,name,user,started,ended,end,param.batch,radrm/gpu_1_peak_memory_megabytes,radrm/run_time_seconds",
                "1,\"a,\"\"b\"\"\",ada,2023-11-14T22:13:20.123Z,2023-11-14T22:13:24.000Z,failed,8,,3.5",
                "2,\"a,\"\"b\"\"\",,2023-11-14T22:13:20.123Z,2023-11-14T22:13:24.000Z,failed,16,2000,",
            ]
        );
        let curves = String::from_utf8(Table::of_curves(&runs()).csv().unwrap()).unwrap();
        assert_eq!(
            curves.lines().nth(2),
            Some("2,radrm/gpu_1_memory_megabytes,1,2023-11-14T22:13:22.123Z,2,2000")
        );
    }

    #[test]
    fn parameters_that_are_numbers_are_numbers() {
        let cells = |texts: [Option<&str>; 2]| {
            let texts = texts.map(|text| text.map(str::to_owned));
            typed(texts.iter().map(Option::as_ref).collect())
        };
        assert_eq!(cells([Some("8"), None]), Cells::Number(vec![Some(8.0), None]));
        assert_eq!(cells([Some("-0.5"), Some("1e-4")]), Cells::Number(vec![Some(-0.5), Some(1e-4)]));
        for other in ["adam", "inf", "nan", "007", "9007199254740993", "", "0x10"] {
            assert!(matches!(cells([Some("8"), Some(other)]), Cells::Text(_)), "{other}");
        }
        let mut runs = runs();
        runs[1].metrics.insert("loss".into(), Metric { last: 0.25, step: Some(3) });
        let table = Table::of_runs(&runs);
        let of = |name: &str| table.0.iter().find(|column| column.name == name).unwrap().cells.clone();
        assert_eq!(of("param.batch"), Cells::Number(vec![Some(8.0), Some(16.0)]));
        assert_eq!(of("metric.loss"), Cells::Number(vec![None, Some(0.25)]));
    }

    #[test]
    fn parquet_holds_the_same_rows_with_their_types() {
        for table in [Table::of_runs(&runs()), Table::of_curves(&runs()), Table::of_runs(&[])] {
            let file = SerializedFileReader::new(bytes::Bytes::from(table.parquet().unwrap())).unwrap();
            let rows: Vec<_> = file.get_row_iter(None).unwrap().map(Result::unwrap).collect();
            assert_eq!(rows.len(), table.rows());
            for (at, row) in rows.iter().enumerate() {
                for ((name, field), column) in row.get_column_iter().zip(&table.0) {
                    assert_eq!(*name, column.name);
                    let shown = match field {
                        Field::Null => String::new(),
                        Field::Str(text) => text.clone(),
                        Field::Int(index) => index.to_string(),
                        Field::Double(number) => number.to_string(),
                        Field::TimestampMillis(ms) => Cells::Time(vec![Some(ms.unsigned_abs())]).shown(0),
                        other => panic!("{other:?}"),
                    };
                    assert_eq!(shown, column.cells.shown(at), "{name}");
                }
            }
        }
    }
}
