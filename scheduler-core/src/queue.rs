//! Jobs that wait, in the order in which they are looked at.

mod alike;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::{Bound, ControlFlow};

use self::alike::{Alike, Head};
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
    users: BTreeMap<UserId, Line>,
    /// Users whose jobs go behind those of others.
    behind: BTreeSet<UserId>,
    len: usize,
    alike: Alike,
}

/// Waiting jobs of a user in their order.
#[derive(Clone, Debug, Default)]
struct Line {
    jobs: BTreeSet<Place>,
    /// The first job of each request.
    heads: BTreeSet<Place>,
}

/// Place of a job among those of its user: class, key, number. Its rank among all jobs is of the same form.
pub(crate) type Place = (u8, i64, JobId);

/// Set-back of the jobs of a user against those of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct SetBack {
    classes: u8,
    /// By what the user used, ms.
    penalty: i64,
}

impl SetBack {
    /// Rank of a job among those of all users. Jobs that running ones wait for stay in the first class.
    fn rank(self, (class, key, job): Place) -> Place {
        let class = if class == 0 { 0 } else { class + self.classes };
        (class, key.saturating_add(self.penalty), job)
    }
}

/// Classes by which the jobs of a user go behind others whose budget is spent: behind all classes of others.
const BEHIND: u8 = 8;

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Enters a job. `request`: what it requests, equal for jobs that differ in their numbers and times only; `None` for a
    /// job that is like no other.
    pub(crate) fn insert(&mut self, user: UserId, place: Place, request: Option<Job>) {
        let line = self.users.entry(user).or_default();
        if line.jobs.insert(place) {
            self.len += 1;
            line.follow(self.alike.insert(place, request));
        }
    }

    pub(crate) fn remove(&mut self, user: UserId, place: Place) {
        if let Some(line) = self.users.get_mut(&user)
            && line.jobs.remove(&place)
        {
            self.len -= 1;
            line.follow(self.alike.remove(place));
            if line.jobs.is_empty() {
                self.users.remove(&user);
            }
        }
    }

    /// Rank that a job of a user has, or would have, at a place, among those of all users, the earlier one being lower.
    pub(crate) fn rank_of(&self, user: UserId, place: Place, penalty: i64) -> Place {
        self.set_back(user, penalty).rank(place)
    }

    /// Jobs of a user go behind those of others, or do so no more.
    pub(crate) fn set_behind(&mut self, user: UserId, is_behind: bool) {
        match is_behind {
            true => self.behind.insert(user),
            false => self.behind.remove(&user),
        };
    }

    fn set_back(&self, user: UserId, penalty: i64) -> SetBack {
        SetBack { classes: if self.behind.contains(&user) { BEHIND } else { 0 }, penalty }
    }

    /// The first job of each request of a user, in order, up to a place.
    pub(crate) fn heads_until(&self, user: UserId, place: Place) -> impl Iterator<Item = JobId> + '_ {
        let lines = self.users.get(&user).into_iter();
        lines.flat_map(move |line| line.heads.range(..=place)).map(|&(_, _, job)| job)
    }

    /// The first waiting job of the same request.
    pub(crate) fn first_alike(&self, job: JobId) -> Option<JobId> {
        self.alike.head(job)
    }

    /// Set-back of a user's jobs in the queue beyond their keys, ms.
    pub(crate) fn penalty(user: UserId, now: Millis, order: &Order, ledger: &Ledger) -> i64 {
        let penalty = order.fair.map_or(0, |fair| ledger.penalty(user, now, &fair).0);
        i64::try_from(penalty).unwrap_or(i64::MAX)
    }

    /// A walk over the first job of each request, in order.
    pub(crate) fn heads(&self, now: Millis, order: &Order, ledger: &Ledger) -> Heads {
        let mut heads = Heads::default();
        for (&user, line) in &self.users {
            let set_back = self.set_back(user, Self::penalty(user, now, order, ledger));
            heads.push(user, set_back, line.heads.first());
        }
        heads
    }

    /// The first jobs in order, at most `most`.
    pub(crate) fn first(&self, most: usize, now: Millis, order: &Order, ledger: &Ledger) -> Vec<JobId> {
        if self.users.len() == 1 {
            let jobs = self.users.values().flat_map(|line| &line.jobs);
            return jobs.take(most).map(|&(_, _, job)| job).collect();
        }
        let mut cursors: Vec<_> = self
            .users
            .iter()
            .map(|(&user, line)| {
                (self.set_back(user, Self::penalty(user, now, order, ledger)), line.jobs.iter())
            })
            .collect();
        let mut heap = BinaryHeap::new();
        for at in 0..cursors.len() {
            push(&mut heap, &mut cursors, at);
        }
        let mut out = Vec::new();
        while out.len() < most
            && let Some(Reverse(((_, _, job), at))) = heap.pop()
        {
            out.push(job);
            push(&mut heap, &mut cursors, at);
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
        let users: Vec<(SetBack, &BTreeSet<Place>)> = self
            .users
            .iter()
            .filter(|(user, _)| whose.is_none_or(|one| one == **user))
            .map(|(user, line)| (self.set_back(*user, penalty(*user)), &line.jobs))
            .collect();
        let ranked = |at: usize, place: &Place| Reverse((users[at].0.rank(*place), at, *place));
        let mut heap: BinaryHeap<_> =
            (0..users.len()).filter_map(|at| Some(ranked(at, users[at].1.first()?))).collect();
        while let Some(Reverse((_, at, (class, key, job)))) = heap.pop() {
            let ControlFlow::Continue(last) = each(job) else { return };
            let behind = Bound::Excluded((class, key, last.max(job)));
            heap.extend(users[at].1.range((behind, Bound::Unbounded)).next().map(|next| ranked(at, next)));
        }
    }
}

impl Line {
    fn follow(&mut self, head: Head) {
        if head.before != head.now {
            head.before.map(|before| self.heads.remove(&before));
            self.heads.extend(head.now);
        }
    }
}

/// A job that comes in a walk: its rank among all jobs, its user, their set-back, and its place among the user's.
type Upcoming = (Place, UserId, SetBack, Place);

/// A walk over the first job of each request, while jobs leave the queue: behind one that left, the next of its request
/// comes in its turn; behind one that stays, none of its request.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    /// The next job of each user.
    heap: BinaryHeap<Reverse<Upcoming>>,
    /// User, set-back and place of the job that came last: its user's next one is looked for when it was handled.
    last: Option<(UserId, SetBack, Place)>,
}

impl Heads {
    fn push(&mut self, user: UserId, set_back: SetBack, place: Option<&Place>) {
        self.heap.extend(place.map(|place| Reverse((set_back.rank(*place), user, set_back, *place))));
    }

    /// The next job in order.
    pub(crate) fn next(&mut self, queue: &Queue) -> Option<JobId> {
        if let Some((user, set_back, place)) = self.last.take()
            && let Some(line) = queue.users.get(&user)
        {
            let behind = (Bound::Excluded(place), Bound::Unbounded);
            self.push(user, set_back, line.heads.range(behind).next());
        }
        let Reverse((_, user, set_back, place)) = self.heap.pop()?;
        self.last = Some((user, set_back, place));
        Some(place.2)
    }

    /// No further job of the user whose job came last comes.
    pub(crate) fn skip_user(&mut self) {
        self.last = None;
    }
}

type Heap = BinaryHeap<Reverse<(Place, usize)>>;
type Cursor<'a> = (SetBack, std::collections::btree_set::Iter<'a, Place>);

fn push(heap: &mut Heap, cursors: &mut [Cursor<'_>], at: usize) {
    let (set_back, jobs) = &mut cursors[at];
    if let Some(&place) = jobs.next() {
        heap.push(Reverse((set_back.rank(place), at)));
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
            queue.insert(user, (1, key, JobId(n)), None);
        }
        let ids = |queue: &Queue, ledger: &Ledger| {
            queue.first(9, Millis(0), &order, ledger).iter().map(|job| job.0).collect::<Vec<_>>()
        };
        assert_eq!(ids(&queue, &ledger), [1, 2, 3, 4]);
        ledger.add(a, 1000, Millis(0), &fair);
        assert_eq!(ids(&queue, &ledger), [3, 4, 1, 2]);
        queue.insert(a, (0, 99, JobId(5)), None);
        assert_eq!(ids(&queue, &ledger), [5, 3, 4, 1, 2]);
        queue.remove(a, (0, 99, JobId(5)));
        queue.remove(b, (1, 30, JobId(3)));
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
            queue.insert(user, (class, key, JobId(n)), None);
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

    #[test]
    fn jobs_of_users_who_are_set_back_come_last_in_every_order() {
        let (mut queue, ledger, order) = (Queue::default(), Ledger::default(), order());
        let (a, b) = (UserId(1), UserId(2));
        for (n, user, class, key) in
            [(1, a, 1, 10), (2, a, 2, 5), (3, a, 0, 99), (4, b, 1, 50), (5, b, 2, 60)]
        {
            queue.insert(user, (class, key, JobId(n)), None);
        }
        let check = |queue: &Queue, expected: [u64; 5]| {
            let first = queue.first(9, Millis(0), &order, &ledger);
            assert_eq!(first.iter().map(|job| job.0).collect::<Vec<_>>(), expected, "first");
            let mut heads = queue.heads(Millis(0), &order, &ledger);
            let walked: Vec<_> = std::iter::from_fn(|| heads.next(queue)).collect();
            assert_eq!(walked, first, "a walk");
            let mut seen = Vec::new();
            queue.visit(
                None,
                |_| 0,
                |job| {
                    seen.push(job);
                    ControlFlow::Continue(job)
                },
            );
            assert_eq!(seen, first, "a visit");
        };
        check(&queue, [3, 1, 4, 2, 5]);
        queue.set_behind(a, true);
        // What running jobs wait for stays first.
        check(&queue, [3, 4, 5, 1, 2]);
        assert!(queue.rank_of(b, (2, 60, JobId(5)), 0) < queue.rank_of(a, (1, 10, JobId(1)), 0));
        queue.set_behind(a, false);
        check(&queue, [3, 1, 4, 2, 5]);
    }

    #[test]
    fn a_walk_leaves_out_the_rest_of_a_user_who_is_skipped() {
        let (mut queue, ledger, order) = (Queue::default(), Ledger::default(), order());
        let (a, b) = (UserId(1), UserId(2));
        for (n, user, key) in [(1, a, 10), (2, a, 20), (3, b, 30), (4, a, 40), (5, b, 50)] {
            queue.insert(user, (1, key, JobId(n)), None);
        }
        let mut heads = queue.heads(Millis(0), &order, &ledger);
        let mut seen = Vec::new();
        while let Some(job) = heads.next(&queue) {
            seen.push(job.0);
            if job == JobId(2) {
                heads.skip_user();
            }
        }
        assert_eq!(seen, [1, 2, 3, 5]);
        let until =
            |key, job| queue.heads_until(a, (1, key, JobId(job))).map(|job| job.0).collect::<Vec<_>>();
        assert_eq!((until(20, 2), until(99, 9)), (vec![1, 2], vec![1, 2, 4]));
    }

    #[test]
    fn a_walk_passes_over_jobs_of_a_request_that_stays() {
        let (mut queue, ledger, order) = (Queue::default(), Ledger::default(), order());
        let (a, b) = (UserId(1), UserId(2));
        let request = |user, gpus| Some(Job { user, gpus, ..Job::new(JobId(0)) });
        for n in 1..=1000 {
            queue.insert(a, (1, 10, JobId(n)), request(a, 1));
        }
        queue.insert(a, (1, 20, JobId(2000)), request(a, 0));
        queue.insert(b, (1, 15, JobId(2001)), request(b, 1));
        queue.insert(b, (1, 15, JobId(2002)), None);
        queue.insert(b, (1, 15, JobId(2003)), None);
        let mut walk = |leave: &[u64]| {
            let mut heads = queue.heads(Millis(0), &order, &ledger);
            let mut seen = Vec::new();
            while let Some(job) = heads.next(&queue) {
                seen.push(job.0);
                if leave.contains(&job.0) {
                    queue.remove(a, (1, 10, job));
                }
            }
            seen
        };
        assert_eq!(walk(&[]), [1, 2001, 2002, 2003, 2000]);
        assert_eq!(walk(&[1, 2]), [1, 2, 3, 2001, 2002, 2003, 2000]);
        assert_eq!(queue.first_alike(JobId(500)), Some(JobId(3)));
        assert_eq!(queue.first_alike(JobId(2003)), Some(JobId(2003)));
        queue.remove(b, (1, 15, JobId(2001)));
        assert_eq!(queue.first_alike(JobId(2001)), None);
        for n in 3..=1000 {
            queue.remove(a, (1, 10, JobId(n)));
        }
        queue.insert(a, (1, 30, JobId(3000)), request(a, 1));
        let mut heads = queue.heads(Millis(0), &order, &ledger);
        assert_eq!(
            std::iter::from_fn(|| heads.next(&queue)).map(|job| job.0).collect::<Vec<_>>(),
            [2002, 2003, 2000, 3000]
        );
    }
}
