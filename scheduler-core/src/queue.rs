//! Jobs that wait, in the order in which they are looked at.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::fair::Ledger;
use crate::job::{Job, JobId};
use crate::settings::Order;
use crate::units::Millis;
use radrm_base::UserId;

/// The part of a job's place in the queue that does not change while it waits. Lower is earlier. `lined_up`: since when
/// it waits for its turn, its submission or the end of its last slot.
pub(crate) fn key(job: &Job, lined_up: Millis, order: &Order) -> i64 {
    let most = i64::from(order.most_priority.max(0));
    let priority = i64::from(job.priority).clamp(-most, most);
    let signed = |span: u64| i64::try_from(span).unwrap_or(i64::MAX);
    let work = job.expected.map_or(0, |time| time.0);
    let set_back =
        (u128::from(work) * u128::from(order.shortest) / 1000).min(u128::from(order.shortest_most.0));
    // A job of unknown run time is taken for a short one: it is looked at early, and its next runs
    // are known.
    let set_back = match (job.expected, order.shortest) {
        (None, 1..) => order.shortest_most.0 / 8,
        _ => u64::try_from(set_back).unwrap_or(u64::MAX),
    };
    signed(lined_up.0)
        .saturating_sub(priority.saturating_mul(signed(order.aging.0)))
        .saturating_add(signed(set_back))
}

/// Waiting jobs, by user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    users: BTreeMap<UserId, BTreeSet<(u8, i64, JobId)>>,
    len: usize,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, user: UserId, class: u8, key: i64, job: JobId) {
        self.len += usize::from(self.users.entry(user).or_default().insert((class, key, job)));
    }

    pub(crate) fn remove(&mut self, user: UserId, class: u8, key: i64, job: JobId) {
        if let Some(jobs) = self.users.get_mut(&user) {
            self.len -= usize::from(jobs.remove(&(class, key, job)));
            if jobs.is_empty() {
                self.users.remove(&user);
            }
        }
    }

    /// Set-back of a user's jobs in the queue beyond their keys, ms.
    pub(crate) fn penalty(user: UserId, now: Millis, order: &Order, ledger: &Ledger) -> i64 {
        let penalty = order.fair.map_or(0, |fair| ledger.penalty(user, now, &fair).0);
        i64::try_from(penalty).unwrap_or(i64::MAX)
    }

    /// The first jobs in order, at most `most`.
    pub(crate) fn first(&self, most: usize, now: Millis, order: &Order, ledger: &Ledger) -> Vec<JobId> {
        if self.users.len() == 1 {
            let jobs = self.users.values().flatten();
            return jobs.take(most).map(|&(_, _, job)| job).collect();
        }
        let mut cursors: Vec<_> = self
            .users
            .iter()
            .map(|(&user, jobs)| (Self::penalty(user, now, order, ledger), jobs.iter()))
            .collect();
        let mut heap = BinaryHeap::new();
        for at in 0..cursors.len() {
            push(&mut heap, &mut cursors, at);
        }
        let mut out = Vec::new();
        while out.len() < most
            && let Some(Reverse((_, _, job, at))) = heap.pop()
        {
            out.push(job);
            push(&mut heap, &mut cursors, at);
        }
        out
    }
}

type Heap = BinaryHeap<Reverse<(u8, i64, JobId, usize)>>;
type Cursor<'a> = (i64, std::collections::btree_set::Iter<'a, (u8, i64, JobId)>);

fn push(heap: &mut Heap, cursors: &mut [Cursor<'_>], at: usize) {
    let (penalty, jobs) = &mut cursors[at];
    if let Some(&(class, key, job)) = jobs.next() {
        heap.push(Reverse((class, key.saturating_add(*penalty), job, at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::FairShare;

    fn order() -> Order {
        Order { aging: Millis(100), shortest: 1000, shortest_most: Millis(800), ..Order::default() }
    }

    #[test]
    fn keys_weigh_priority_age_and_length() {
        let base = Job { submitted: Millis(1000), expected: Some(Millis(50)), ..Job::new(JobId(1)) };
        let key = |job: Job| key(&job, job.submitted, &order());
        assert_eq!(key(base.clone()), 1050);
        assert_eq!(key(Job { priority: 3, ..base.clone() }), 750);
        assert_eq!(key(Job { expected: Some(Millis(1 << 40)), ..base.clone() }), 1800);
        assert_eq!(key(Job { priority: i32::MAX, ..base }), 1050 - 2400);
    }

    #[test]
    fn users_take_turns_by_what_they_used() {
        let mut queue = Queue::default();
        let mut ledger = Ledger::default();
        let order = order();
        let fair = FairShare { half_life: Millis(1000), most: Millis(50) };
        let order = Order { fair: Some(fair), ..order };
        let (a, b) = (UserId(1), UserId(2));
        for (n, user, key) in [(1, a, 10), (2, a, 20), (3, b, 30), (4, b, 40)] {
            queue.insert(user, 1, key, JobId(n));
        }
        let ids = |queue: &Queue, ledger: &Ledger| {
            queue.first(9, Millis(0), &order, ledger).iter().map(|job| job.0).collect::<Vec<_>>()
        };
        assert_eq!(ids(&queue, &ledger), [1, 2, 3, 4]);
        ledger.add(a, 1000, Millis(0), &fair);
        assert_eq!(ids(&queue, &ledger), [3, 4, 1, 2]);
        queue.insert(a, 0, 99, JobId(5));
        assert_eq!(ids(&queue, &ledger), [5, 3, 4, 1, 2]);
        queue.remove(a, 0, 99, JobId(5));
        queue.remove(b, 1, 30, JobId(3));
        assert_eq!(queue.len(), 3);
    }
}
