//! Needs in event logs of versions that knew three kinds of need and no source.

use radrm_need::{Need, Source};
use serde::{Deserialize, Deserializer};

use crate::units::Bytes;

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Legacy {
    Measured(Bytes),
    Estimated { bytes: Bytes, upper: Bytes },
    Unknown,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Now(Need),
    Then(Legacy),
}

impl Stored {
    fn need(self) -> Option<Need> {
        match self {
            Self::Now(need) => Some(need),
            Self::Then(Legacy::Measured(peak)) => Some(Need::measured(peak)),
            // Those versions enforced each bound in the core.
            Self::Then(Legacy::Estimated { bytes, upper }) => {
                Some(Need::new(bytes, upper, None, Source::Declared))
            }
            Self::Then(Legacy::Unknown) => None,
        }
    }
}

/// A job's need.
pub(crate) fn option<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Need>, D::Error> {
    Ok(Option::<Stored>::deserialize(from)?.and_then(Stored::need))
}

/// The need of an event, which those versions sent only where one was known.
pub(crate) fn known<'de, D: Deserializer<'de>>(from: D) -> Result<Need, D::Error> {
    option(from)?.ok_or_else(|| serde::de::Error::custom("no need is known"))
}

#[cfg(test)]
mod tests {
    use crate::{Bytes, Event, Job, JobId, Need};

    #[test]
    fn needs_of_older_logs_are_read() {
        let job = serde_json::to_value(Job::new(JobId(1))).unwrap();
        let with = |need: serde_json::Value| {
            let mut job = job.clone();
            job["need"] = need;
            serde_json::from_value::<Job>(job).unwrap().need
        };
        assert_eq!(with("unknown".into()), None);
        assert_eq!(with(serde_json::json!({"measured": 7})), Some(Need::measured(Bytes(7))));
        let estimated = with(serde_json::json!({"estimated": {"bytes": 5, "upper": 9}})).unwrap();
        assert_eq!((estimated.bytes, estimated.upper, estimated.enforce), (Bytes(5), Bytes(9), true));
        let now = Need::declared(Bytes(3));
        assert_eq!(with(serde_json::to_value(&now).unwrap()), Some(now));
        let event = r#"{"event": "need_known", "job": 4, "need": {"measured": 7}}"#;
        let need = Need::measured(Bytes(7));
        assert_eq!(serde_json::from_str::<Event>(event).unwrap(), Event::NeedKnown { job: JobId(4), need });
    }
}
