//! A group whose runs are jobs, or about to be.

use radrm_protocol::wire::JobRow;

use crate::job;
use crate::plan::{Group, Run};
use crate::store::{Outcome, Recorded, Submission};

/// A run that is a job, or about to be one.
pub(super) struct Member<'p> {
    pub(super) run: &'p Run,
    pub(super) recorded: Recorded,
    pub(super) submission: Submission,
    /// Outcome, and true if it was cancelled and is to be repeated; `None` until it has ended.
    pub(super) ended: Option<(Outcome, bool)>,
}

/// A group whose runs are jobs, or about to be.
pub(super) struct Open<'p> {
    pub(super) group: &'p Group,
    pub(super) members: Vec<Member<'p>>,
    /// In this call: a user who holds a job later means it.
    pub(super) was_released: bool,
    /// A job of it was seen to run.
    pub(super) runs: bool,
}

/// Number of jobs that these groups have, or are about to have.
pub(super) fn count(open: &[Open<'_>]) -> usize {
    open.iter().map(|one| one.members.len()).sum()
}

impl<'p> Open<'p> {
    /// A group with what is recorded of each run; `None` if one is not recorded as a job.
    pub(super) fn of(group: &'p Group, recorded: Vec<Recorded>) -> Option<Self> {
        if recorded.len() != group.runs.len() {
            return None;
        }
        let member = |(run, recorded): (&'p Run, Recorded)| {
            let submission = recorded.submission.clone()?;
            Some(Member { run, recorded, submission, ended: None })
        };
        let members = group.runs.iter().zip(recorded).map(member).collect::<Option<_>>()?;
        Some(Self { group, members, was_released: false, runs: false })
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.members.iter().map(|member| member.recorded.key.clone()).collect()
    }

    pub(super) fn recorded(&self) -> Vec<Recorded> {
        self.members.iter().map(|member| member.recorded.clone()).collect()
    }

    pub(super) fn tags(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.submission.tag.as_str())
    }

    /// The numbers of its jobs; empty: it may not have been submitted.
    pub(super) fn jobs(&self) -> Vec<u64> {
        self.members.iter().filter_map(|member| member.submission.job).collect()
    }

    /// Jobs that are not known to be over.
    pub(super) fn open_jobs(&self) -> Vec<u64> {
        let open = self.members.iter().filter(|member| member.ended.is_none());
        open.filter_map(|member| member.submission.job).collect()
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.members.iter().any(|member| member.submission.withdrawn)
    }

    /// The number of its first job, if one of these is of it: all are submitted at once, with consecutive numbers.
    pub(super) fn first_among(&self, rows: &[JobRow]) -> Option<u64> {
        self.members.iter().zip(0_u64..).find_map(|(member, position)| {
            let row = rows.iter().find(|row| job::is_of(row, &member.submission.tag))?;
            row.job.checked_sub(position)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_finds_its_jobs_by_any_of_them() {
        let group = Group { runs: vec![Run::default(); 2], ..Group::default() };
        let recorded = |tag: &str| {
            let submission = Some(Submission { tag: tag.into(), ..Submission::default() });
            Recorded { submission, ..Recorded::default() }
        };
        let mut open = Open::of(&group, vec![recorded("a"), recorded("b")]).unwrap();
        let row = |job, tag| JobRow { job, name: job::name("run", tag).into(), ..JobRow::default() };
        assert_eq!(open.first_among(&[row(6, "other"), row(7, "a")]), Some(7));
        // The first is over already, and in no list.
        assert_eq!(open.first_among(&[row(8, "b")]), Some(7));
        assert_eq!(open.first_among(&[row(8, "other")]), None);
        assert!(open.jobs().is_empty());
        for (member, job) in open.members.iter_mut().zip(7..) {
            member.submission.job = Some(job);
        }
        open.members[0].ended = Some((Outcome::default(), false));
        assert_eq!((open.jobs(), open.open_jobs()), (vec![7, 8], vec![8]));
        // Not all of it is recorded, or one is not a job: it is begun anew.
        assert!(Open::of(&group, vec![recorded("a")]).is_none());
        assert!(Open::of(&group, vec![recorded("a"), Recorded::default()]).is_none());
    }
}
