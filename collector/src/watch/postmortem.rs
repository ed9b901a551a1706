//! Refused requests: what the processes wrote down of them goes into the
//! profile, and NVML is asked at once.

use super::Watch;
use crate::source::{Brief, Source};
use radrm_profile::Record;
use radrm_profile::model::{NvmlSample, Process, ProcessKey};

/// Other processes of the job whose largest blocks are searched.
const OTHERS_WITH_BLOCKS: usize = 8;
/// So many of each.
const BLOCKS_OF_OTHERS: usize = 8;
/// Blocks of the process itself where it had no time to read all of them.
const BLOCKS: usize = 32;

impl<S: Source> Watch<S> {
    /// Reads what processes have written down of refusals: of those in
    /// `refused` now, of the others when all is read anyway.
    pub(super) fn read_refusals(&mut self, briefs: &[Brief], refused: &[ProcessKey], all: bool) {
        let mut is_news = false;
        for brief in briefs.iter().filter(|brief| all || !brief.alive || refused.contains(&brief.key)) {
            for found in self.source.postmortems(brief.key) {
                let source = &mut self.source;
                let processes = &self.output.profile.processes;
                is_news |= self.postmortems.found(
                    found,
                    |pid| is_own(pid, briefs, processes),
                    |postmortem| {
                        let (gpu, t) = (postmortem.gpu(), postmortem.request.t);
                        let is_host = postmortem.is_for_the_host();
                        if postmortem.blocks_cut || !postmortem.is_complete {
                            let blocks = source.blocks_before(postmortem.process, gpu, t, is_host, BLOCKS);
                            if !blocks.is_empty() {
                                postmortem.blocks = blocks;
                            }
                        }
                        let others = postmortem.others.iter_mut().flatten();
                        for other in others.take(OTHERS_WITH_BLOCKS) {
                            other.blocks = source.blocks_before(other.key, gpu, t, is_host, BLOCKS_OF_OTHERS);
                        }
                    },
                );
            }
        }
        if is_news {
            self.sampler.ask();
        }
        self.write_postmortems(all);
    }

    /// Hears a list of NVML before anything is left out of it.
    pub(super) fn hear_neighbours(&mut self, list: &NvmlSample, briefs: &[Brief]) {
        let processes = &self.output.profile.processes;
        self.postmortems.hear(list, |pid| is_own(pid, briefs, processes));
    }

    /// Writes what is new; `all`: also what could wait.
    pub(super) fn write_postmortems(&mut self, all: bool) {
        for postmortem in self.postmortems.take(all) {
            self.write(Record::Postmortem(Box::new(postmortem)));
        }
    }
}

fn is_own(pid: u32, briefs: &[Brief], processes: &[Process]) -> bool {
    briefs.iter().any(|brief| brief.pid == Some(pid)) || processes.iter().any(|it| it.identity.pid == pid)
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use radrm_profile::Bytes;
    use radrm_profile::model::postmortem::{JobProcess, Later};
    use radrm_profile::model::{Block, Event, GpuIndex, Postmortem};
    use std::cell::RefCell;
    use std::rc::Rc;

    /// A job of one process that was refused memory.
    #[derive(Default)]
    struct Job1 {
        now: Nanos,
        is_alive: bool,
        events: Vec<Event>,
        postmortems: Vec<Postmortem>,
        is_released: bool,
        reads: usize,
    }

    #[derive(Clone, Default)]
    struct Refused(Rc<RefCell<Job1>>);

    impl Source for Refused {
        fn now(&self) -> Nanos {
            self.0.borrow().now
        }
        fn origin_mono_ns(&self) -> u64 {
            0
        }
        fn gpus(&mut self) -> Vec<Gpu> {
            Vec::new()
        }
        fn processes(&mut self, _: bool) -> Vec<Brief> {
            let job = self.0.borrow();
            let brief = Brief { pid: Some(7), alive: job.is_alive, ..Brief::default() };
            if job.is_released { Vec::new() } else { vec![brief] }
        }
        fn details(&mut self, key: ProcessKey) -> Option<Process> {
            Some(Process { key, ..Process::default() })
        }
        fn events(&mut self, _: ProcessKey, _: bool) -> Vec<Event> {
            std::mem::take(&mut self.0.borrow_mut().events)
        }
        fn postmortems(&mut self, _: ProcessKey) -> Vec<Postmortem> {
            let mut job = self.0.borrow_mut();
            assert!(!job.is_released, "read too late");
            job.reads += 1;
            job.postmortems.clone()
        }
        fn blocks_before(
            &mut self,
            key: ProcessKey,
            gpu: GpuIndex,
            moment: Nanos,
            _: bool,
            most: usize,
        ) -> Vec<Block> {
            vec![Block { size: Bytes(u64::from(key.slot) + most as u64), kind: 0, gpu, since: moment }]
        }
        fn release(&mut self, _: ProcessKey) {
            self.0.borrow_mut().is_released = true;
        }
    }

    impl Refused {
        fn refuse(&self) {
            let mut job = self.0.borrow_mut();
            let (t, kind) = (job.now, EventKind::Refused { kind: 0, size: Bytes(5) });
            job.events.push(Event { t, process: ProcessKey::default(), gpu: None, kind });
            if let Some(first) = job.postmortems.first_mut() {
                first.later.device += 1;
                return;
            }
            let other = ProcessKey { slot: 90, generation: 1 };
            job.postmortems.push(Postmortem {
                is_complete: true,
                others: Some(vec![JobProcess { key: other, ..JobProcess::default() }]),
                ..Postmortem::default()
            });
        }
    }

    fn watched() -> (Refused, Watch<Refused>) {
        let job = Refused::default();
        job.0.borrow_mut().is_alive = true;
        let options = WatchOptions {
            profile: ProfileFile::None,
            nvml: NvmlSource::Off,
            digest: false,
            ..WatchOptions::default()
        };
        let watch = Watch::start(job.clone(), Job { pid: 7, ..Job::default() }, &options);
        (job, watch)
    }

    #[test]
    fn a_refusal_is_written_at_the_next_look_and_later_ones_with_the_next_state() {
        let (job, mut watch) = watched();
        job.0.borrow_mut().now = Nanos::from_secs(10);
        watch.poll();
        job.0.borrow_mut().now = Nanos::from_millis(10_050);
        job.refuse();
        watch.poll();
        let known = |watch: &Watch<Refused>| watch.output.profile.postmortems.clone();
        let [it] = &known(&watch)[..] else { panic!("{:?}", known(&watch)) };
        assert_eq!(it.later, Later::default());
        // Of the other process the largest blocks of that time were searched.
        assert_eq!(it.others.as_ref().map(|others| others[0].blocks[0].size), Some(Bytes(98)));
        job.0.borrow_mut().now = Nanos::from_millis(10_100);
        job.refuse();
        watch.poll();
        assert_eq!(known(&watch)[0].later.device, 0, "not at once");
        job.0.borrow_mut().now = Nanos::from_secs(12);
        watch.poll();
        assert_eq!(known(&watch)[0].later.device, 1);
    }

    #[test]
    fn while_nothing_is_refused_nothing_is_read_between_states() {
        let (job, mut watch) = watched();
        for ms in (10_000..10_900).step_by(50) {
            job.0.borrow_mut().now = Nanos::from_millis(ms);
            watch.poll();
        }
        assert_eq!(job.0.borrow().reads, 1);
    }

    #[test]
    fn what_the_dead_wrote_is_read_before_their_slot_is_given_back() {
        let (job, mut watch) = watched();
        watch.poll();
        job.refuse();
        job.0.borrow_mut().events.clear();
        job.0.borrow_mut().is_alive = false;
        job.0.borrow_mut().now = Nanos::from_millis(5);
        watch.poll();
        assert!(job.0.borrow().is_released);
        assert_eq!(watch.finish(Exit::Signal(9)).profile.postmortems.len(), 1);
    }
}
