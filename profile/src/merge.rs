//! Records become a profile.

use crate::model::{End, Kernel, Note, Postmortem, Process, Profile, Timeline, TimelinePoint};
use crate::record::{KernelCounters, KernelDefinition, ProcessDelta, Record, State};

impl Profile {
    /// Adds what a record says. A second job record is ignored: the first one
    /// began the profile.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Job(_) => {}
            Record::Gpus(gpus) => self.gpus = gpus,
            Record::State(state) => self.apply_state(state),
            Record::Samples(samples) => add(&mut self.samples, samples),
            Record::ProgramDigest(digest) => self.job.program_sha256 = Some(digest),
            Record::Note(text) => self.notes.push(Note::Collector(text)),
            Record::Outcome(outcome) => {
                // One that came before is the end of the program, after which its job went on.
                let earlier = self.outcome.replace(outcome).map(|earlier| earlier.duration);
                self.program_ended = self.program_ended.or(earlier);
            }
            Record::Unseen(text) => self.unseen.push(text),
            Record::Postmortem(postmortem) => self.apply_postmortem(*postmortem),
            Record::Activity(spans) => add(&mut self.activity, spans),
            Record::Host(news) => self.host.apply(news),
            Record::Unmeasured(text) => self.unmeasured.push(text),
            Record::GpuClock(time) => self.gpu_clock = time,
            // Of a process without a state there is nothing to say.
            Record::Timings(timings) => {
                if let Some(process) = self.processes.iter_mut().rfind(|process| process.key == timings.key) {
                    process.timings = timings;
                }
            }
            Record::Throttling(throttling) => {
                if let Some(process) = self.processes.iter_mut().rfind(|p| p.key == throttling.key) {
                    process.throttling = throttling;
                }
            }
            Record::Stacks(stacks) => {
                if let Some(process) = self.processes.iter_mut().rfind(|p| p.key == stacks.key) {
                    process.stacks = Some(*stacks);
                }
            }
            Record::StackMoment(moment) => {
                if let Some(process) = self.processes.iter_mut().rfind(|p| p.key == moment.key) {
                    process.stack_moments.push(*moment);
                }
            }
            Record::StackRefusals(of) => {
                if let Some(process) = self.processes.iter_mut().rfind(|p| p.key == of.key) {
                    process.stack_refusals = of.refusals;
                }
            }
            Record::Tensors(tensors) => {
                if let Some(process) = self.processes.iter_mut().rfind(|p| p.key == tensors.key) {
                    process.tensors = Some(*tensors);
                }
            }
            Record::Ranges(ranges) => {
                if let Some(process) = self.processes.iter_mut().rfind(|p| p.key == ranges.key) {
                    process.ranges = Some(*ranges);
                }
            }
            Record::RangeEvents(events) => add(&mut self.range_events, events),
            Record::KernelMetrics(metrics) => self.kernel_metrics = Some(*metrics),
            Record::MemoryLimits(limits) => add(&mut self.memory_limits, limits),
            Record::BlockMap(map) => self.block_maps.push(*map),
            Record::Uncounted(processes) => self.uncounted = processes,
            Record::InitFailures(failures) => self.init_failures = failures,
            Record::DryRun(figures) => self.dry_run = Some(*figures),
            Record::Fits(fits) => self.fits = fits,
            Record::Expected(expected) => self.expected = Some(expected),
            Record::Step(step) => self.step = Some(*step),
            Record::Ranks(ranks) => self.ranks = Some(ranks),
            Record::Launches(launches) => add(&mut self.launches, launches),
            Record::Recording(recording) => {
                if let Some(process) = self.processes.iter_mut().rfind(|p| p.key == recording.key) {
                    process.kernels_mode = Some(recording.kernels);
                }
            }
            Record::KernelActivity(spans) => {
                for span in &spans {
                    if let Some(process) = self.processes.iter_mut().rfind(|p| p.key == span.process) {
                        process.kernel_activity = process.kernel_activity.and(span.kernel_activity);
                    }
                }
                add(&mut self.kernel_activity, spans);
            }
        }
    }

    fn apply_postmortem(&mut self, postmortem: Postmortem) {
        match self.postmortems.iter_mut().find(|known| known.is_same(&postmortem)) {
            Some(known) => *known = postmortem,
            None => self.postmortems.push(postmortem),
        }
    }

    fn apply_state(&mut self, state: State) {
        // A state can be several records of the same time.
        if state.t > self.last_state {
            self.state_before = std::mem::replace(&mut self.last_state, state.t);
        }
        self.events_thinned = state.events_thinned;
        self.processes_not_kept = state.processes_not_kept;
        for delta in state.processes {
            // From the end: the processes that change are mostly the newest.
            let at = match self.processes.iter().rposition(|process| process.key == delta.key) {
                Some(at) => at,
                None => {
                    self.processes.push(Process { key: delta.key, ..Process::default() });
                    self.processes.len() - 1
                }
            };
            let process = &mut self.processes[at];
            let was_running = process.state.end == End::Running;
            process.apply(delta);
            if was_running && process.state.end != End::Running {
                // A process that leaves in order knows the time; any other was
                // found missing, some time after having been seen.
                let said = matches!(process.state.end, End::Exited(None) | End::Exec);
                let ended = process.state.ended.filter(|_| said);
                process.seen_alive = ended.unwrap_or(self.state_before);
            }
        }
        self.events.extend(state.events);
    }
}

impl Process {
    fn apply(&mut self, delta: ProcessDelta) {
        if let Some(identity) = delta.identity {
            self.identity = identity;
        }
        self.state = delta.state;
        for definition in delta.definitions {
            let kernel = self.kernel_mut(definition.id);
            kernel.name = definition.name;
            kernel.name_cut = definition.name_cut;
            kernel.registers = definition.registers;
            kernel.static_shared = definition.static_shared;
            kernel.local = definition.local;
            kernel.max_threads = definition.max_threads;
        }
        for counters in delta.counters {
            let kernel = self.kernel_mut(counters.id);
            kernel.launches = counters.launches;
            kernel.graph_launches = counters.graph_launches;
            kernel.blocks = counters.blocks;
            kernel.threads = counters.threads;
            kernel.dynamic_shared = counters.dynamic_shared;
        }
        for chunk in delta.timelines {
            let at = match self.timelines.iter().position(|timeline| timeline.gpu == chunk.gpu) {
                Some(at) => at,
                None => {
                    self.timelines.push(Timeline { gpu: chunk.gpu, points: Vec::new() });
                    self.timelines.len() - 1
                }
            };
            self.timelines[at].extend(chunk.points);
        }
    }

    /// The kernel with this id; made if it is new. Kernels stay sorted by id.
    fn kernel_mut(&mut self, id: u32) -> &mut Kernel {
        let at = match self.kernels.binary_search_by_key(&id, |kernel| kernel.id) {
            Ok(at) => at,
            Err(at) => {
                self.kernels.insert(at, Kernel { id, ..Kernel::default() });
                at
            }
        };
        &mut self.kernels[at]
    }
}

impl Timeline {
    /// Adds points; those that are already known from the first new one's
    /// time on are replaced.
    pub fn extend(&mut self, points: Vec<TimelinePoint>) {
        let Some(first) = points.first() else { return };
        let keep = self.points.partition_point(|point| point.t < first.t);
        self.points.truncate(keep);
        add(&mut self.points, points);
    }
}

/// Adds to a list, of which there is no second copy in memory where it was empty.
fn add<T>(list: &mut Vec<T>, more: Vec<T>) {
    if list.is_empty() {
        *list = more;
    } else {
        list.extend(more);
    }
}

impl From<&Kernel> for KernelDefinition {
    fn from(kernel: &Kernel) -> KernelDefinition {
        KernelDefinition {
            id: kernel.id,
            name: kernel.name.clone(),
            name_cut: kernel.name_cut,
            registers: kernel.registers,
            static_shared: kernel.static_shared,
            local: kernel.local,
            max_threads: kernel.max_threads,
        }
    }
}

impl From<&Kernel> for KernelCounters {
    fn from(kernel: &Kernel) -> KernelCounters {
        KernelCounters {
            id: kernel.id,
            launches: kernel.launches,
            graph_launches: kernel.graph_launches,
            blocks: kernel.blocks,
            threads: kernel.threads,
            dynamic_shared: kernel.dynamic_shared,
        }
    }
}
