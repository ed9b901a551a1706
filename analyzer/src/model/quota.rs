//! The limits on a GPU's memory that were in force.

use radrm_profile::model::postmortem::Scope;
use radrm_profile::model::{GpuIndex, Profile};
use radrm_profile::{Bytes, Nanos};
use serde::Serialize;
use std::collections::BTreeMap;

/// The limit of one scope on a GPU's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LimitInForce {
    /// `job`, `user` or `group`. Of several limits of one scope the lowest holds.
    pub scope: &'static str,
    /// Values of the limit, by time.
    pub spans: Vec<LimitSpan>,
    /// False if only a refused request shows it: what it was before and after is not recorded.
    pub is_recorded: bool,
}

/// Value of a limit from a moment on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LimitSpan {
    /// The moment.
    pub from_ns: Nanos,
    /// The limit; null where there was none.
    pub limit_bytes: Option<Bytes>,
}

impl LimitInForce {
    /// Name for people.
    pub(crate) fn label(&self) -> &'static str {
        match self.scope {
            "user" => "quota of the user",
            "group" => "quota of the group",
            _ => "quota of the job",
        }
    }

    /// `10.0 GiB; from 30.0 s on 8.00 GiB`.
    pub(crate) fn text(&self) -> String {
        let bytes = |span: &LimitSpan| span.limit_bytes.map_or("none".to_owned(), |limit| limit.to_string());
        let mut parts = Vec::new();
        for span in &self.spans {
            parts.push(match parts.is_empty() && span.from_ns == Nanos::ZERO {
                true => bytes(span),
                false => format!("from {} on {}", span.from_ns, bytes(span)),
            });
        }
        parts.join("; ")
    }
}

/// The limits on a GPU, the job's first.
pub(super) fn in_force(profile: &Profile, gpu: GpuIndex) -> Vec<LimitInForce> {
    let span = |(from_ns, limit_bytes): (Nanos, Option<Bytes>)| LimitSpan { from_ns, limit_bytes };
    let recorded = profile.limits_on(gpu);
    // Profiles of before have limits only where one refused a request.
    let mut refused = BTreeMap::<Scope, Bytes>::new();
    let quotas = profile.postmortems.iter().filter(|it| it.gpu() == gpu).flat_map(|it| &it.quotas);
    for quota in quotas.filter(|quota| !recorded.contains_key(&quota.scope)) {
        let lowest = refused.entry(quota.scope).or_insert(quota.limit);
        *lowest = (*lowest).min(quota.limit);
    }
    let recorded = recorded.into_iter().map(|(scope, spans)| {
        (
            scope,
            LimitInForce {
                scope: scope.key(),
                spans: spans.into_iter().map(span).collect(),
                is_recorded: true,
            },
        )
    });
    let refused = refused.into_iter().map(|(scope, limit)| {
        let spans = vec![span((Nanos::ZERO, Some(limit)))];
        (scope, LimitInForce { scope: scope.key(), spans, is_recorded: false })
    });
    recorded.chain(refused).collect::<BTreeMap<_, _>>().into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::postmortem::{Postmortem, QuotaUse};
    use radrm_profile::model::{Job, MemoryLimit};

    fn limit(seconds: u64, scope: Scope, gib: Option<u64>) -> MemoryLimit {
        MemoryLimit { t: Nanos::from_secs(seconds), gpu: GpuIndex(1), scope, limit: gib.map(Bytes::from_gib) }
    }

    #[test]
    fn limits_have_their_changes_and_times() {
        let mut profile = Profile::new(Job::default());
        profile.memory_limits = vec![
            limit(0, Scope::User, Some(20)),
            limit(0, Scope::Job, Some(10)),
            limit(30, Scope::Job, Some(8)),
            limit(40, Scope::Job, None),
        ];
        let texts = |gpu| -> Vec<String> {
            let limits = in_force(&profile, GpuIndex(gpu));
            limits.iter().map(|limit| format!("{}: {}", limit.scope, limit.text())).collect()
        };
        let job = "job: 10.0 GiB; from 30.0 s on 8.00 GiB; from 40.0 s on none";
        assert_eq!(texts(1), [job, "user: 20.0 GiB"]);
        assert_eq!(texts(0), [] as [&str; 0]);
        profile.memory_limits = vec![limit(30, Scope::Job, Some(8))];
        assert_eq!(in_force(&profile, GpuIndex(1))[0].text(), "from 30.0 s on 8.00 GiB");
    }

    #[test]
    fn a_profile_without_limits_has_those_that_refused() {
        let mut profile = Profile::new(Job::default());
        let quota = |scope, gib| QuotaUse { scope, limit: Bytes::from_gib(gib), used: Bytes::ZERO };
        let quotas = vec![quota(Scope::Job, 9), quota(Scope::Group, 5), quota(Scope::Group, 4)];
        profile.postmortems = vec![Postmortem { quotas, ..Postmortem::default() }];
        profile.memory_limits = vec![MemoryLimit { gpu: GpuIndex(0), ..limit(0, Scope::Job, Some(10)) }];
        let limits = in_force(&profile, GpuIndex(0));
        let shown: Vec<_> =
            limits.iter().map(|limit| (limit.scope, limit.text(), limit.is_recorded)).collect();
        assert_eq!(shown, [("job", "10.0 GiB".into(), true), ("group", "4.00 GiB".into(), false)]);
    }
}
