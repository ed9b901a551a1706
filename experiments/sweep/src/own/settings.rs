//! The conditions of a run: limits, shares, GPUs, time.

use radrm_limits::config::Percentage;
use radrm_limits::requested::RequestedLimits;
use radrm_protocol::span;
use toml::Spanned;

use super::checks::At;
use crate::error::Wrong;
use crate::plan::Collocation;

/// Names of settings, which no axis can have: a member of a group states both.
pub(super) const RESERVED: [&str; 5] = ["copies", "devices", "mem_limit", "sm_limit", "timeout"];

/// Settings as written; what is not stated is inherited.
#[derive(Debug, Default)]
pub(super) struct RawSettings<'r> {
    pub(super) timeout: Option<&'r Spanned<String>>,
    pub(super) mem_limit: Option<&'r Spanned<String>>,
    pub(super) sm_limit: Option<&'r Spanned<String>>,
    pub(super) devices: Option<&'r Spanned<Vec<toml::Value>>>,
    pub(super) collocation: Option<&'r Spanned<String>>,
}

/// Settings that were checked.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub(super) timeout_ms: Option<u64>,
    pub(super) mem_limit: Option<String>,
    pub(super) sm_limit: Option<String>,
    pub(super) devices: Vec<String>,
    pub(super) collocation: Collocation,
}

impl Settings {
    /// These, with what is stated in their place.
    pub(super) fn with(&self, raw: &RawSettings<'_>) -> Result<Self, At> {
        let mut settings = self.clone();
        if let Some(time) = raw.timeout {
            let ms = span::milliseconds(time.get_ref()).filter(|ms| *ms > 0);
            settings.timeout_ms =
                Some(ms.ok_or_else(|| (time.span().start, Wrong::Time(time.get_ref().clone())))?);
        }
        if let Some(limit) = raw.mem_limit {
            let wrong = |error| (limit.span().start, Wrong::Limit(format!("{error}")));
            RequestedLimits::parse(limit.get_ref()).map_err(wrong)?;
            settings.mem_limit = Some(limit.get_ref().clone());
        }
        if let Some(share) = raw.sm_limit {
            Percentage::parse(share.get_ref())
                .map_err(|error| (share.span().start, Wrong::Limit(error.to_string())))?;
            settings.sm_limit = Some(share.get_ref().clone());
        }
        if let Some(list) = raw.devices {
            let device = |value: &toml::Value| match value {
                toml::Value::Integer(number) if (0..1000).contains(number) => Ok(number.to_string()),
                toml::Value::String(uuid) if uuid.starts_with("GPU-") || uuid.starts_with("MIG-") => {
                    Ok(uuid.clone())
                }
                other => Err((list.span().start, Wrong::Device(other.to_string()))),
            };
            settings.devices = list.get_ref().iter().map(device).collect::<Result<_, _>>()?;
        }
        if let Some(collocation) = raw.collocation {
            let text = collocation.get_ref();
            settings.collocation = Collocation::parse(text)
                .ok_or_else(|| (collocation.span().start, Wrong::Collocation(text.clone())))?;
        }
        Ok(settings)
    }

    /// Settings that distinguish a configuration, besides the axes.
    pub(super) fn distinguishing(&self) -> impl Iterator<Item = String> {
        let limit = self.mem_limit.iter().map(|limit| format!("mem_limit={limit}"));
        limit.chain(self.sm_limit.iter().map(|share| format!("sm_limit={share}")))
    }
}
