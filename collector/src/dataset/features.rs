//! Features of a job's processes, as a row keeps them: a column of its own, as JSON, that is read only where it is
//! asked for, for it is many times longer than the rest of the row.

use radrm_base::Permille;
use rusqlite::{Connection, Error, OptionalExtension, params};

pub use radrm_profile::findings::{Features, Figure, ProcessFeatures};

/// Features from the column's text; `None` where its form is not known.
fn parse(text: &str) -> Option<Features> {
    serde_json::from_str(text).ok()
}

/// Reads the features of the row with this number; `None` where it keeps none, or in a form that is not known.
pub(super) fn read(connection: &Connection, id: i64) -> Result<Option<Features>, Error> {
    let mut statement = connection.prepare_cached("SELECT features FROM runs WHERE id = ?")?;
    let found = statement.query_row([id], |row| Ok(row.get_ref(0)?.as_str().ok().and_then(parse)));
    Ok(found.optional()?.flatten())
}

/// Writes those of the row with this number, and what is known of the activity.
pub(super) fn update(
    connection: &Connection,
    id: i64,
    features: &Features,
    activity: [Option<Permille>; 3],
) -> Result<(), Error> {
    let text =
        serde_json::to_string(features).map_err(|error| Error::ToSqlConversionFailure(error.into()))?;
    let [smact, smocc, drama] = activity.map(|part| part.map(|part| part.0));
    connection
        .prepare_cached(
            "UPDATE runs SET features = ?2, smact_permille = COALESCE(?3, smact_permille),
                 smocc_permille = COALESCE(?4, smocc_permille), drama_permille = COALESCE(?5, drama_permille)
             WHERE id = ?1",
        )?
        .execute(params![id, text, smact, smocc, drama])
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_is_no_number_does_not_spoil_the_others() {
        let figures = [("a", 1.5), ("b", f64::NAN), ("c", f64::INFINITY)];
        let features = figures.map(|(name, value)| (name.to_owned(), Figure::new(value, "derived"))).into();
        let process = ProcessFeatures { pid: 7, features };
        let text = serde_json::to_string(&process).unwrap();
        assert_eq!(serde_json::from_str::<ProcessFeatures>(&text).unwrap(), process);
        assert_eq!(process.features.values().flatten().count(), 1);
    }

    #[test]
    fn activity_that_was_not_measured_is_none_and_not_zero() {
        let process = |figures: &[(&str, f64)]| {
            let features =
                figures.iter().map(|(name, value)| ((*name).to_owned(), Figure::new(*value, "measured")));
            ProcessFeatures { pid: 7, features: features.collect() }
        };
        let processes = vec![
            process(&[("sm_active", 50.0), ("dram_throughput", 0.0)]),
            process(&[("sm_active", 25.0)]),
            process(&[]),
        ];
        let features = Features { processes, left_out: 0 };
        assert_eq!(features.activity(), [Some(Permille(375)), None, Some(Permille(0))]);
    }
}
