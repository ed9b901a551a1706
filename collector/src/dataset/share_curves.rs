//! Launches of programs in a second at parts of a GPU's multiprocessors, under MPS.

use rusqlite::{Connection, Error, OptionalExtension, named_params, params};

/// A curve. A row of the table `share_curves`, the only one of its program and model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasuredShares {
    /// Time of the measurement, ns since 1970.
    pub unix_ns: u64,
    /// Host name.
    pub host: String,
    /// Product name of the GPU.
    pub gpu_model: String,
    /// True if it is an emulated one.
    pub emulated: bool,
    /// Program that was run, see [`program_name`](super::program_name).
    pub program: String,
    /// Per cent of the multiprocessors, and launches in a second.
    pub points: Vec<(u8, f64)>,
}

pub(super) fn replace(connection: &Connection, row: &MeasuredShares) -> Result<(), Error> {
    let points =
        serde_json::to_string(&row.points).map_err(|error| Error::ToSqlConversionFailure(error.into()))?;
    connection.execute(
        "INSERT OR REPLACE INTO share_curves (unix_ns, host, gpu_model, emulated, program, points)
         VALUES (:unix_ns, :host, :gpu_model, :emulated, :program, :points)",
        named_params! {
            ":unix_ns": i64::try_from(row.unix_ns).unwrap_or(i64::MAX), ":host": row.host,
            ":gpu_model": row.gpu_model, ":emulated": row.emulated, ":program": row.program, ":points": points,
        },
    )?;
    Ok(())
}

/// The curve of a program on a model; one in a form that is not known is none.
pub(super) fn of(
    connection: &Connection,
    program: &str,
    model: &str,
    emulated: bool,
) -> Result<Option<MeasuredShares>, Error> {
    let found = connection
        .query_row(
            "SELECT unix_ns, host, points FROM share_curves WHERE program = ? AND gpu_model = ? AND emulated = ?",
            params![program, model, emulated],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?)),
        )
        .optional()?;
    Ok(found.and_then(|(unix_ns, host, points)| {
        Some(MeasuredShares {
            unix_ns: unix_ns.unsigned_abs(),
            host,
            gpu_model: model.to_owned(),
            emulated,
            program: program.to_owned(),
            points: serde_json::from_str(&points).ok()?,
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::super::Dataset;
    use super::*;

    #[test]
    fn a_new_curve_takes_the_place_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let mut dataset = Dataset::open(&dir.path().join("d.db")).unwrap();
        let row = |rate| MeasuredShares {
            unix_ns: 7,
            gpu_model: "G".into(),
            program: "p".into(),
            points: vec![(100, rate), (50, 1.0)],
            ..MeasuredShares::default()
        };
        assert_eq!(dataset.share_curve("p", "G", false).unwrap(), None);
        dataset.set_share_curve(&row(5.0)).unwrap();
        dataset.set_share_curve(&row(6.0)).unwrap();
        assert_eq!(dataset.share_curve("p", "G", false).unwrap(), Some(row(6.0)));
        assert_eq!(dataset.share_curve("p", "G", true).unwrap(), None, "an emulated GPU is another one");
        assert_eq!(dataset.share_curve("p", "H", false).unwrap(), None);
        dataset.connection.execute("UPDATE share_curves SET points = '{'", []).unwrap();
        assert_eq!(dataset.share_curve("p", "G", false).unwrap(), None);
    }
}
