//! Jobs as users name them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ProtocolError;

/// A job (`12`), or one job of an array (`12_3`: the index 3 of array 12). The number of an array is that of its first job.
///
/// Without an index it goes over the wire as a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct JobRef {
    /// The number of the job, or of the array.
    pub job: u64,
    /// The index in the array.
    pub index: Option<u32>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Wire {
    Number(u64),
    Name(String),
}

impl From<u64> for JobRef {
    fn from(job: u64) -> Self {
        Self { job, index: None }
    }
}

impl From<JobRef> for Wire {
    fn from(named: JobRef) -> Self {
        match named.index {
            None => Self::Number(named.job),
            Some(_) => Self::Name(named.to_string()),
        }
    }
}

impl TryFrom<Wire> for JobRef {
    type Error = ProtocolError;

    fn try_from(wire: Wire) -> Result<Self, ProtocolError> {
        match wire {
            Wire::Number(job) => Ok(job.into()),
            Wire::Name(name) => name.parse(),
        }
    }
}

impl fmt::Display for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.job)?;
        self.index.map_or(Ok(()), |index| write!(f, "_{index}"))
    }
}

impl FromStr for JobRef {
    type Err = ProtocolError;

    fn from_str(text: &str) -> Result<Self, ProtocolError> {
        let wrong = || ProtocolError::NoJob(text.to_owned());
        let number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(());
        let (job, index) = text.split_once('_').map_or((text, None), |(job, index)| (job, Some(index)));
        number(job).and(number(index.unwrap_or_default())).ok_or_else(wrong)?;
        let index = index.map(str::parse).transpose().map_err(|_| wrong())?;
        Ok(Self { job: job.parse().map_err(|_| wrong())?, index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_as_it_is_written_and_numbers_stay_numbers() {
        for (text, job, index) in
            [("12", 12, None), ("12_0", 12, Some(0)), ("7_4294967295", 7, Some(u32::MAX))]
        {
            let named = JobRef { job, index };
            assert_eq!(text.parse(), Ok(named));
            assert_eq!(named.to_string(), text);
            let json = serde_json::to_string(&named).unwrap();
            assert_eq!(serde_json::from_str::<JobRef>(&json).unwrap(), named);
        }
        assert_eq!(serde_json::to_string(&JobRef::from(12)).unwrap(), "12");
        for wrong in ["", "_", "12_", "_3", "-1", "+1", "1_+2", "1_2_3", "x", "12_4294967296"] {
            let error = wrong.parse::<JobRef>().unwrap_err().to_string();
            assert!(error.contains("is not a job number") && error.lines().count() == 1, "{error}");
        }
    }
}
