//! Waiting jobs of equal requests: where the first of them finds no place, the others find none.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::Place;
use crate::job::{Job, JobId};

/// Waiting jobs, by what they request.
#[derive(Clone, Debug, Default)]
pub(super) struct Alike {
    /// Numbers of the requests; only looked up, so their order decides nothing.
    numbers: HashMap<Arc<Job>, u64>,
    kinds: BTreeMap<u64, Kind>,
    of: BTreeMap<JobId, u64>,
    next: u64,
}

/// Jobs of one request.
#[derive(Clone, Debug, Default)]
struct Kind {
    /// `None` for a job that is like no other.
    request: Option<Arc<Job>>,
    places: BTreeSet<Place>,
}

/// Change of the first job of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) before: Option<Place>,
    pub(super) now: Option<Place>,
}

impl Alike {
    /// Enters a job with its request, without what differs from one job to the next.
    pub(super) fn insert(&mut self, place: Place, request: Option<Job>) -> Head {
        let known = request.as_ref().and_then(|request| self.numbers.get(request)).copied();
        let number = known.unwrap_or_else(|| {
            let number = self.next;
            self.next += 1;
            let request = request.map(Arc::new);
            if let Some(request) = &request {
                self.numbers.insert(Arc::clone(request), number);
            }
            self.kinds.insert(number, Kind { request, places: BTreeSet::new() });
            number
        });
        self.of.insert(place.2, number);
        let Some(kind) = self.kinds.get_mut(&number) else { return Head::default() };
        let before = kind.places.first().copied();
        kind.places.insert(place);
        Head { before, now: kind.places.first().copied() }
    }

    pub(super) fn remove(&mut self, place: Place) -> Head {
        let Some(number) = self.of.remove(&place.2) else { return Head::default() };
        let Some(kind) = self.kinds.get_mut(&number) else { return Head::default() };
        let before = kind.places.first().copied();
        kind.places.remove(&place);
        let now = kind.places.first().copied();
        if now.is_none()
            && let Some(request) = self.kinds.remove(&number).and_then(|kind| kind.request)
        {
            self.numbers.remove(&request);
        }
        Head { before, now }
    }

    /// The first job of the same request.
    pub(super) fn head(&self, job: JobId) -> Option<JobId> {
        let kind = self.kinds.get(self.of.get(&job)?)?;
        kind.places.first().map(|place| place.2)
    }
}
