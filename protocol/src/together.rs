//! Groups of jobs that start together: submitted with one request, all or none of them.

use serde::{Deserialize, Serialize};

use crate::ProtocolError;
pub use crate::bounds::MAX_TOGETHER;
use crate::spec::Spec;

/// A job of a group, as a client submits it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Member {
    /// Job specification of its user.
    pub spec: Spec,
    /// Jobs of equal sites get the same GPUs, jobs of different sites different ones.
    pub site: u32,
}

/// A job's place in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Its position, from 0. Numbers of a group's jobs are consecutive.
    pub position: u32,
    /// Number of jobs in the group.
    pub members: u32,
    /// As of [`Member`].
    pub site: u32,
}

impl Place {
    /// The number of the group's first job, from that of this one.
    #[must_use]
    pub fn first(self, job: u64) -> u64 {
        job.saturating_sub(self.position.into())
    }
}

/// Checks what a group must have in common, beside what is wrong with a job of it.
///
/// # Errors
/// What is wrong with the group.
pub fn check(members: &[Member]) -> Result<(), ProtocolError> {
    if !(1..=MAX_TOGETHER).contains(&members.len()) {
        return Err(ProtocolError::GroupSize(members.len()));
    }
    if members.iter().any(|member| member.spec.array.is_some()) {
        return Err(ProtocolError::ArrayInGroup);
    }
    let differs = |one: &Member, other: &Member| one.site == other.site && one.spec.gpus != other.spec.gpus;
    if members.iter().any(|one| members.iter().any(|other| differs(one, other))) {
        return Err(ProtocolError::SiteGpus);
    }
    match members.windows(2).all(|pair| pair[0].spec.model == pair[1].spec.model) {
        true => Ok(()),
        false => Err(ProtocolError::GroupModels),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_group_is_one_sentence() {
        let member = |site, gpus| Member { site, spec: Spec { gpus, ..Spec::default() } };
        check(&[member(0, 1), member(0, 1), member(3, 2)]).unwrap();
        let array = Some("0-1".parse().unwrap());
        let array = Member { spec: Spec { array, ..Spec::default() }, site: 0 };
        let model = Member { spec: Spec { model: Some("T4".into()), ..member(0, 1).spec }, site: 0 };
        for (group, part) in [
            (vec![], "0 jobs"),
            (vec![member(0, 1); MAX_TOGETHER + 1], "jobs start together at most"),
            (vec![array], "array"),
            (vec![member(0, 1), member(0, 2)], "as many"),
            (vec![member(0, 1), model], "model"),
        ] {
            let text = check(&group).unwrap_err().to_string();
            assert!(text.contains(part) && text.lines().count() == 1, "{text}");
        }
    }
}
