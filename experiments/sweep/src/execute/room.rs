//! GPUs for groups that run at once: no two groups have one in common, so that run times can be compared.

use std::collections::VecDeque;

use crate::plan::{Collocation, Group, Run};

/// A GPU of this machine, as runs may name it: numbers are in the order of the PCI bus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// Its number.
    pub number: String,
    /// `GPU-...`.
    pub uuid: String,
}

impl Gpu {
    /// Returns true if a list of GPUs names it so.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        self.number == name || (name.starts_with("GPU-") && self.uuid.starts_with(name))
    }
}

/// Place of a group that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    /// On a machine of its own, which is emulated.
    Own,
    /// On these GPUs, by their places in the list.
    Gpus(Vec<usize>),
    /// With nothing beside it.
    Alone,
}

/// GPUs, and those of them that are free.
#[derive(Debug)]
pub(super) struct Room {
    gpus: Vec<Gpu>,
    taken: Vec<bool>,
    /// Most groups at once.
    most: usize,
    seats: usize,
    is_alone: bool,
}

impl Room {
    /// Room for `most` groups on these GPUs.
    pub(super) fn new(most: usize, gpus: Vec<Gpu>) -> Self {
        Self { taken: vec![false; gpus.len()], gpus, most, seats: 0, is_alone: false }
    }

    /// The first of these groups that can run beside those that do, with its seat. A group that must be alone is not passed by
    /// later ones.
    pub(super) fn next(&mut self, waiting: &VecDeque<&Group>) -> Option<(usize, Seat)> {
        if self.is_alone || self.seats >= self.most {
            return None;
        }
        for (at, group) in waiting.iter().enumerate() {
            let seat = self.seat(group);
            match &seat {
                Some(Seat::Alone) if self.seats > 0 => return None,
                Some(Seat::Alone) => self.is_alone = true,
                Some(Seat::Gpus(list)) => list.iter().for_each(|gpu| self.taken[*gpu] = true),
                Some(Seat::Own) => {}
                None => continue,
            }
            self.seats += 1;
            return seat.map(|seat| (at, seat));
        }
        None
    }

    /// The seat of a group; `None` while others have its GPUs.
    fn seat(&self, group: &Group) -> Option<Seat> {
        let runs = &group.runs;
        if self.most == 1 {
            return Some(Seat::Alone);
        }
        if runs.iter().all(|run| run.emulate.is_some()) {
            return Some(Seat::Own);
        }
        // What instances and control daemons of MPS are there is not known here.
        let is_plain = |run: &Run| run.collocation == Collocation::Streams && run.emulate.is_none();
        if self.gpus.is_empty() || !runs.iter().all(is_plain) {
            return Some(Seat::Alone);
        }
        let names: Vec<&String> = runs.iter().flat_map(|run| &run.devices).collect();
        if names.is_empty() {
            let free = self.taken.iter().position(|taken| !taken)?;
            return Some(Seat::Gpus(vec![free]));
        }
        let place = |name: &&String| self.gpus.iter().position(|gpu| gpu.is_named(name));
        let places = names.iter().map(place).collect::<Option<Vec<_>>>();
        // A run without names sees all.
        let (Some(mut places), false) = (places, runs.iter().any(|run| run.devices.is_empty())) else {
            return Some(Seat::Alone);
        };
        places.sort_unstable();
        places.dedup();
        places.iter().all(|gpu| !self.taken[*gpu]).then_some(Seat::Gpus(places))
    }

    /// The GPU for runs of a seat that name none; `None`: they see all.
    pub(super) fn gpu(&self, seat: &Seat) -> Option<&str> {
        match seat {
            Seat::Gpus(list) => list.first().map(|gpu| self.gpus[*gpu].uuid.as_str()),
            Seat::Own | Seat::Alone => None,
        }
    }

    /// A group is over.
    pub(super) fn leave(&mut self, seat: &Seat) {
        self.seats -= 1;
        match seat {
            Seat::Own => {}
            Seat::Gpus(list) => list.iter().for_each(|gpu| self.taken[*gpu] = false),
            Seat::Alone => self.is_alone = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(count: usize) -> Vec<Gpu> {
        (0..count).map(|at| Gpu { number: at.to_string(), uuid: format!("GPU-{at}") }).collect()
    }

    fn group(devices: &[&[&str]]) -> Group {
        let run = |devices: &&[&str]| Run {
            devices: devices.iter().map(|name| (*name).to_owned()).collect(),
            ..Run::default()
        };
        Group { runs: devices.iter().map(run).collect(), ..Group::default() }
    }

    #[test]
    fn groups_get_gpus_that_no_other_has() {
        let (any, named, other) = (group(&[&[], &[]]), group(&[&["0"], &["GPU-1"]]), group(&[&["1"]]));
        let mut room = Room::new(4, gpus(3));
        let waiting = VecDeque::from([&named, &other, &any, &any]);
        assert_eq!(room.next(&waiting), Some((0, Seat::Gpus(vec![0, 1]))));
        let waiting = VecDeque::from([&other, &any, &any]);
        let (at, seat) = room.next(&waiting).unwrap();
        assert_eq!((at, room.gpu(&seat)), (1, Some("GPU-2")), "GPU 1 is taken: a later group passes");
        assert_eq!(room.next(&VecDeque::from([&other, &any])), None);
        room.leave(&Seat::Gpus(vec![0, 1]));
        assert_eq!(room.next(&VecDeque::from([&other, &any])), Some((0, Seat::Gpus(vec![1]))));
        assert_eq!(room.next(&VecDeque::from([&any])), Some((0, Seat::Gpus(vec![0]))));
    }

    #[test]
    fn no_more_groups_run_than_are_asked_for() {
        let any = group(&[&[]]);
        let mut room = Room::new(2, gpus(3));
        let waiting = VecDeque::from([&any, &any, &any]);
        assert!(room.next(&waiting).is_some() && room.next(&waiting).is_some());
        assert_eq!(room.next(&waiting), None);
        // One at a time: each sees all GPUs, as without the option.
        let mut room = Room::new(1, gpus(3));
        assert_eq!(room.next(&waiting), Some((0, Seat::Alone)));
        assert_eq!(room.next(&waiting), None);
    }

    #[test]
    fn what_may_be_on_any_gpu_runs_alone_and_is_not_passed() {
        let mut mps = group(&[&["0"]]);
        mps.runs[0].collocation = Collocation::Mps;
        let any = group(&[&[]]);
        for alone in [mps, group(&[&[], &["0"]]), group(&[&["9"]])] {
            let mut room = Room::new(4, gpus(3));
            let first = room.next(&VecDeque::from([&any, &alone])).unwrap();
            assert_eq!(room.next(&VecDeque::from([&alone, &any])), None, "it waits, and none passes it");
            room.leave(&first.1);
            assert_eq!(room.next(&VecDeque::from([&alone, &any])), Some((0, Seat::Alone)));
            assert_eq!(room.next(&VecDeque::from([&any])), None);
        }
        let mut emulated = group(&[&[], &[]]);
        emulated.runs.iter_mut().for_each(|run| run.emulate = Some("T4".into()));
        let mut room = Room::new(4, Vec::new());
        assert_eq!(room.next(&VecDeque::from([&emulated])), Some((0, Seat::Own)));
        assert_eq!(room.next(&VecDeque::from([&any])), None, "GPUs are not known");
    }
}
