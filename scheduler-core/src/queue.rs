//! Jobs that wait, in the order in which they are looked at.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::{Bound, ControlFlow};

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
    users: BTreeMap<UserId, Jobs>,
    /// Users whose jobs go behind those of others.
    behind: BTreeSet<UserId>,
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

    pub(crate) fn has(&self, user: UserId, class: u8, key: i64, job: JobId) -> bool {
        self.users.get(&user).is_some_and(|jobs| jobs.contains(&(class, key, job)))
    }

    /// Set-back of a user's jobs in the queue beyond their keys, ms.
    pub(crate) fn penalty(user: UserId, now: Millis, order: &Order, ledger: &Ledger) -> i64 {
        let penalty = order.fair.map_or(0, |fair| ledger.penalty(user, now, &fair).0);
        i64::try_from(penalty).unwrap_or(i64::MAX)
    }

    /// Jobs of a user go behind those of others, or do so no more.
    pub(crate) fn set_behind(&mut self, user: UserId, is_behind: bool) {
        match is_behind {
            true => self.behind.insert(user),
            false => self.behind.remove(&user),
        };
    }

    /// Classes by which a user's jobs are behind.
    pub(crate) fn set_back(&self, user: UserId) -> u8 {
        if self.behind.contains(&user) { BEHIND } else { 0 }
    }

    /// Jobs of a user in order.
    pub(crate) fn of(&self, user: UserId) -> impl Iterator<Item = JobId> + '_ {
        self.users.get(&user).into_iter().flatten().map(|&(_, _, job)| job)
    }

    /// The first jobs in order, at most `most`.
    pub(crate) fn first(&self, most: usize, now: Millis, order: &Order, ledger: &Ledger) -> Vec<JobId> {
        self.first_of(most, now, order, ledger, |_, _| true)
    }

    /// The first jobs in order, at most `most`. Of a user none from the one on that is not admitted.
    pub(crate) fn first_of(
        &self,
        most: usize,
        now: Millis,
        order: &Order,
        ledger: &Ledger,
        mut admits: impl FnMut(UserId, JobId) -> bool,
    ) -> Vec<JobId> {
        if self.users.len() == 1
            && let Some((&user, jobs)) = self.users.first_key_value()
        {
            let jobs = jobs.iter().map(|&(_, _, job)| job);
            return jobs.take(most).take_while(|job| admits(user, *job)).collect();
        }
        let mut cursors: Vec<_> = self
            .users
            .iter()
            .map(|(&user, jobs)| Cursor {
                user,
                set_back: self.set_back(user),
                penalty: Self::penalty(user, now, order, ledger),
                jobs: jobs.iter(),
            })
            .collect();
        let mut heap = BinaryHeap::new();
        for at in 0..cursors.len() {
            push(&mut heap, &mut cursors, at);
        }
        let mut out = Vec::new();
        while out.len() < most
            && let Some(Reverse((_, _, job, at))) = heap.pop()
        {
            if admits(cursors[at].user, job) {
                out.push(job);
                push(&mut heap, &mut cursors, at);
            }
        }
        out
    }

    /// Visits waiting jobs in order, of one user or of all. The answer to a visit is the job behind which the user's next one is
    /// searched: jobs in between, of the same place but for their numbers, are not visited.
    pub(crate) fn visit(
        &self,
        whose: Option<UserId>,
        penalty: impl Fn(UserId) -> i64,
        mut each: impl FnMut(JobId) -> ControlFlow<(), JobId>,
    ) {
        let users: Vec<(i64, u8, &Jobs)> = self
            .users
            .iter()
            .filter(|(user, _)| whose.is_none_or(|one| one == **user))
            .map(|(user, jobs)| (penalty(*user), self.set_back(*user), jobs))
            .collect();
        let place = |at: usize, &(class, key, job): &(u8, i64, JobId)| {
            Reverse((behind(class, users[at].1), key.saturating_add(users[at].0), job, at, (class, key)))
        };
        let mut heap: BinaryHeap<_> =
            (0..users.len()).filter_map(|at| Some(place(at, users[at].2.first()?))).collect();
        while let Some(Reverse((_, _, job, at, (class, key)))) = heap.pop() {
            let ControlFlow::Continue(last) = each(job) else { return };
            let behind = Bound::Excluded((class, key, last.max(job)));
            heap.extend(users[at].2.range((behind, Bound::Unbounded)).next().map(|next| place(at, next)));
        }
    }
}

/// Waiting jobs of a user in their order: class, key, number.
type Jobs = BTreeSet<(u8, i64, JobId)>;
type Heap = BinaryHeap<Reverse<(u8, i64, JobId, usize)>>;

/// The jobs of a user that are not listed yet.
struct Cursor<'a> {
    user: UserId,
    set_back: u8,
    penalty: i64,
    jobs: std::collections::btree_set::Iter<'a, (u8, i64, JobId)>,
}

/// Classes by which the jobs of a user are behind whose budget is spent: behind all of others.
const BEHIND: u8 = 8;

/// The class of a job of a user who is set back. Jobs that others wait for stay first.
pub(crate) fn behind(class: u8, set_back: u8) -> u8 {
    if class == 0 { 0 } else { class + set_back }
}

fn push(heap: &mut Heap, cursors: &mut [Cursor<'_>], at: usize) {
    let Cursor { set_back, penalty, jobs, .. } = &mut cursors[at];
    if let Some(&(class, key, job)) = jobs.next() {
        heap.push(Reverse((behind(class, *set_back), key.saturating_add(*penalty), job, at)));
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

    #[test]
    fn a_visit_has_the_order_of_the_queue_and_passes_over_runs() {
        let mut queue = Queue::default();
        let (a, b) = (UserId(1), UserId(2));
        for (n, user, class, key) in [
            (1, a, 1, 10),
            (2, a, 1, 10),
            (3, a, 1, 10),
            (4, b, 1, 10),
            (5, a, 1, 10),
            (6, b, 1, 5),
            (9, a, 0, 99),
        ] {
            queue.insert(user, class, key, JobId(n));
        }
        // The second user's jobs are set back by 7.
        let penalty = |user| if user == b { 7 } else { 0 };
        let visit = |whose, last: fn(u64) -> u64, most: usize| {
            let mut seen = Vec::new();
            queue.visit(whose, penalty, |job| {
                seen.push(job.0);
                match seen.len() == most {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(JobId(last(job.0))),
                }
            });
            seen
        };
        assert_eq!(visit(None, |job| job, 99), [9, 1, 2, 3, 5, 6, 4]);
        assert_eq!(visit(Some(b), |job| job, 99), [6, 4]);
        assert_eq!(visit(None, |job| job, 3), [9, 1, 2]);
        // 1 to 3 are a run; 9 is alone in its class.
        assert_eq!(visit(Some(a), |job| job.max(3), 99), [9, 1, 5]);
        assert_eq!(visit(Some(UserId(3)), |job| job, 99), [] as [u64; 0]);
    }
}
