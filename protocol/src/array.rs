//! Arrays: many jobs with one submission.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ProtocolError;
pub use crate::bounds::MAX_TASKS;

/// The indices of an array, and how many of its jobs may be in the queue or run at once, as `sbatch --array` takes
/// them: `0-99`, `1,3,5-9`, `0-20:4`, each with a bound such as `%4`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Array {
    /// Ascending, none twice.
    indices: Vec<u32>,
    at_once: Option<u32>,
    text: String,
}

/// A job's place in its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayTask {
    /// Its index, as the user gave it.
    pub index: u32,
    /// Its position, from 0. Numbers of an array's jobs are consecutive, so the array's number is the job's less this.
    pub position: u32,
    /// Number of jobs in the array.
    pub tasks: u32,
    /// The bound on jobs at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
}

impl ArrayTask {
    /// The array's number, from that of its job.
    #[must_use]
    pub fn array(self, job: u64) -> u64 {
        job.saturating_sub(self.position.into())
    }
}

impl Array {
    /// Its jobs, in the order of their numbers.
    pub fn tasks(&self) -> impl Iterator<Item = ArrayTask> + '_ {
        let at_once = self.at_once;
        let tasks = u32::try_from(self.len()).unwrap_or(u32::MAX);
        (0..).zip(&self.indices).map(move |(position, &index)| ArrayTask { index, position, tasks, at_once })
    }

    /// Number of jobs in the array.
    #[must_use]
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Returns true if the array has no job, which cannot be: it always has one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }
}

impl FromStr for Array {
    type Err = ProtocolError;

    fn from_str(text: &str) -> Result<Self, ProtocolError> {
        let wrong = || ProtocolError::NoIndices(text.to_owned());
        let number =
            |text: &str| text.parse::<u32>().ok().filter(|_| !text.starts_with('+')).ok_or_else(wrong);
        let (list, at_once) = match text.split_once('%') {
            Some((list, bound)) => (list, Some(number(bound)?)),
            None => (text, None),
        };
        if at_once == Some(0) {
            return Err(ProtocolError::ZeroAtOnce);
        }
        let mut indices = Vec::new();
        for part in list.split(',') {
            let (range, step) = match part.split_once(':') {
                Some((range, step)) => (range, number(step)?),
                None => (part, 1),
            };
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (number(first)?, number(last)?);
            if first > last || step == 0 {
                return Err(wrong());
            }
            let step = usize::try_from(step).map_err(|_| wrong())?;
            // One more than allowed is enough to see that there are too many.
            indices.extend((first..=last).step_by(step).take(MAX_TASKS + 1));
            if indices.len() > 2 * MAX_TASKS {
                return Err(ProtocolError::LargeArray);
            }
        }
        indices.sort_unstable();
        indices.dedup();
        if indices.len() > MAX_TASKS {
            return Err(ProtocolError::LargeArray);
        }
        Ok(Self { indices, at_once, text: text.to_owned() })
    }
}

impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Array> for String {
    fn from(array: Array) -> Self {
        array.text
    }
}

impl TryFrom<String> for Array {
    type Error = ProtocolError;

    fn try_from(text: String) -> Result<Self, ProtocolError> {
        text.parse()
    }
}

/// Indices as users write them, `0-3,7`.
#[must_use]
pub fn ranges(indices: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &index in indices {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(index) => *last = index,
            _ => parts.push((index, index)),
        }
    }
    join(parts)
}

/// Ranges of indices, first and last one of each, as users write them.
#[must_use]
pub fn join(ranges: impl IntoIterator<Item = (u32, u32)>) -> String {
    let part =
        |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.into_iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_read_as_sbatch_reads_them() {
        let indices = |text: &str| text.parse::<Array>().map(|array| array.indices);
        assert_eq!(indices("0-3"), Ok(vec![0, 1, 2, 3]));
        assert_eq!(indices("7,1,3-4,3"), Ok(vec![1, 3, 4, 7]));
        assert_eq!(indices("0-20:8"), Ok(vec![0, 8, 16]));
        assert_eq!(indices("4294967290-4294967295").map(|all| all.len()), Ok(6));
        let array: Array = "5-6%4".parse().unwrap();
        let task = |index, position| ArrayTask { index, position, tasks: 2, at_once: Some(4) };
        assert_eq!(array.tasks().collect::<Vec<_>>(), [task(5, 0), task(6, 1)]);
        assert_eq!(task(6, 1).array(13), 12);
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }

    #[test]
    fn wrong_and_endless_arrays_are_one_sentence() {
        for (text, part) in [
            ("", "no indices"),
            ("a", "no indices"),
            ("3-1", "no indices"),
            ("0-9:0", "no indices"),
            ("0-9%", "no indices"),
            ("0-9%0", "bound of 0"),
            ("0-4294967295", "at most 10000"),
            ("0-10000", "at most 10000"),
            ("0-9999,5-10001,7-4294967295", "at most 10000"),
        ] {
            let error = text.parse::<Array>().unwrap_err().to_string();
            assert!(error.contains(part) && error.lines().count() == 1, "{text}: {error}");
        }
        assert_eq!("0-9999,0-9999".parse::<Array>().unwrap().len(), MAX_TASKS);
    }
}
