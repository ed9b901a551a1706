//! Watching a job: what its processes do goes into its profile.

use crate::activity::SpanBuilder;
use crate::blocks;
use crate::dcgm::DcgmSource;
use crate::delta::delta;
use crate::digest::PendingDigest;
use crate::exits::Exits;
use crate::frameworks;
use crate::host::HostWatch;
use crate::launches::{self, LaunchThinner};
use crate::nvml::{NvmlSource, Sampler};
use crate::output::{Output, ProfileFile};
use crate::pace::{EventThinner, FINE_TIMELINES, SampleThinner, coarse, next_state, poll_gap};
use crate::postmortem::Postmortems;
use crate::ranges::{self, RangeThinner};
use crate::remainder::Remainders;
use crate::segment_source::EntryName;
use crate::source::{Brief, Source};
use crate::stacks;
use crate::timings;
use radrm_profile::model::postmortem as postmortem_model;
use radrm_profile::model::{
    Account, End, EventKind, Exit, Framework, Gpu, GpuClock, GpuIndex, Job, Note, NvmlSample, Outcome,
    Process, ProcessKey, Profile, Recording, Timings,
};
use radrm_profile::{Bytes, Nanos, Record, State};
use radrm_telemetry::ledger::LedgerView;
use radrm_telemetry::{NoticeBoard, Scope};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

mod ends;
mod limits;
mod load;
mod measured;
mod notices;
mod nvml;
mod postmortem;
mod since;
#[cfg(test)]
mod tests;

pub use notices::InitWords;

/// Processes that a profile keeps one by one. A job that starts more (a build
/// whose every step asks for the GPU) has them counted.
const PROCESSES: usize = 4096;

/// Ages at which a process's libraries are read: frameworks load theirs
/// within seconds, and some only with the first model.
const FRAMEWORK_AGES: [Nanos; 5] =
    [Nanos::ZERO, Nanos::from_millis(300), Nanos::from_secs(2), Nanos::from_secs(10), Nanos::from_secs(60)];

/// Samples that wait at most for the next state.
const SAMPLES_WAITING: usize = 256;

/// Longest wait of a job's end for NVML's thread and for the digest.
const END_TIMEOUT: Duration = Duration::from_millis(500);

/// Options of a watch, besides the segment that it reads.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Destination of the profile.
    pub profile: ProfileFile,
    /// NVML that is queried.
    pub nvml: NvmlSource,
    /// DCGM that is queried for GPUs that NVML does not measure.
    pub dcgm: DcgmSource,
    /// Compute the SHA-256 of the program (on a thread).
    pub digest: bool,
    /// Names of the shim's entry points by number. Where it knows none, a
    /// refused request carries the name of its family (`cuMemAlloc`).
    pub entry_name: EntryName,
    /// Parts of the job that cannot be read; see [`Profile::unseen`].
    pub unseen: Vec<String>,
    /// Sentences about the start of the job, for the profile's notes.
    pub notes: Vec<String>,
    /// Relation of the GPUs' time to the host's time. Where it is not real no load is recorded.
    pub gpu_clock: GpuClock,
    /// The ledgers of limits on memory, with whom they apply to.
    pub ledgers: Vec<(Scope, LedgerView)>,
    /// Context overhead of a process on a GPU, bytes, by the GPU's name: for processes that end before it is measured.
    pub contexts: BTreeMap<String, u64>,
    /// Board for reports of processes that cannot reach the segment.
    pub board: Option<Arc<NoticeBoard>>,
    /// Words for the codes of a failed `cuInit`.
    pub init_words: InitWords,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions {
            profile: ProfileFile::Default,
            nvml: NvmlSource::System,
            dcgm: DcgmSource::System,
            digest: true,
            entry_name: |_| None,
            unseen: Vec::new(),
            notes: Vec::new(),
            gpu_clock: GpuClock::Real,
            ledgers: Vec::new(),
            contexts: BTreeMap::new(),
            board: None,
            init_words: |_| ("", "unknown", "see the driver's documentation"),
        }
    }
}

/// Result of a watch.
#[derive(Debug)]
pub struct Finished {
    /// The profile, complete also where its file is not.
    pub profile: Profile,
    /// Its file, if there is one.
    pub path: Option<PathBuf>,
    /// Sentences for the user that were not taken before.
    pub warnings: Vec<String>,
    /// Sentences about what of the profile could not be written.
    pub failures: Vec<String>,
}

/// A watch over a job. Never fails and never waits: what cannot be done is said once and left out.
pub(crate) struct Watch<S> {
    source: S,
    output: Output,
    warnings: Vec<String>,
    failures: Vec<String>,
    sampler: Sampler,
    nvml: NvmlSource,
    nvml_silent: NvmlSilence,
    digest: PendingDigest,
    driver: (Option<String>, Option<u32>),
    events: EventThinner,
    samples: SampleThinner,
    samples_ready: Vec<NvmlSample>,
    launches: LaunchThinner,
    /// Ranges and marks that wait for the next state.
    ranges: RangeThinner,
    activity: SpanBuilder,
    meters: load::Meters,
    host: HostWatch,
    remainders: Remainders,
    /// Context overheads, by the GPU's name.
    contexts: BTreeMap<String, u64>,
    postmortems: Postmortems,
    /// As they were last seen.
    limits: BTreeMap<(GpuIndex, postmortem_model::Scope), Option<Bytes>>,
    notices: notices::Notices,
    /// Living processes and dead ones that are not saved yet.
    processes: HashMap<ProcessKey, Watched>,
    /// Processes met so far.
    met: usize,
    /// Processes beyond [`PROCESSES`].
    left_out: HashSet<ProcessKey>,
    left_out_count: u64,
    /// Exits of children, by process id.
    exits: BTreeMap<u32, Exit>,
    /// Exits of processes that are not our children.
    others: Exits,
    last_briefs: Vec<Brief>,
    last_poll: Nanos,
    next_state: Nanos,
    /// States so far were written up to here.
    started: Nanos,
    /// When the program had ended, if the caller said so.
    program_ended: Option<Nanos>,
    /// Another process goes on with the job.
    is_paused: bool,
}

/// Samples in a row in which NVML listed processes, but none of ours.
#[derive(Default)]
struct NvmlSilence {
    samples: u32,
    said: bool,
}

struct Watched {
    seen: Nanos,
    library_reads: usize,
    frameworks: Vec<Framework>,
    fine_timeline: bool,
    keeps_launches: bool,
    /// Up to here its work is in the profile.
    worked: Nanos,
    /// Call stacks that are in the profile.
    stacks: stacks::Written,
    /// Maps of its blocks that are in the profile.
    maps: blocks::Written,
    /// Time at which figures of its ranges are written.
    ranges: ranges::Due,
}

impl<S: Source> Watch<S> {
    pub(crate) fn start(source: S, job: Job, options: &WatchOptions) -> Watch<S> {
        let digest = match &job.program {
            Some(program) if options.digest => PendingDigest::start(program.into()),
            _ => PendingDigest::none(),
        };
        let sampler = Sampler::start(&options.nvml, source.origin_mono_ns());
        let host = HostWatch::new(job.pid);
        let (output, failure) = Output::begin(job, &options.profile);
        let now = source.now();
        let mut watch = Watch {
            source,
            output,
            warnings: Vec::new(),
            failures: failure.iter().map(ToString::to_string).collect(),
            sampler,
            nvml: options.nvml.clone(),
            nvml_silent: NvmlSilence::default(),
            digest,
            driver: (None, None),
            events: EventThinner::default(),
            samples: SampleThinner::default(),
            samples_ready: Vec::new(),
            launches: LaunchThinner::default(),
            ranges: RangeThinner::default(),
            activity: SpanBuilder::default(),
            meters: load::Meters::new(&options.dcgm, &options.nvml),
            host,
            remainders: Remainders::default(),
            contexts: options.contexts.clone(),
            postmortems: Postmortems::default(),
            limits: BTreeMap::new(),
            notices: notices::Notices::new(options),
            processes: HashMap::new(),
            met: 0,
            left_out: HashSet::new(),
            left_out_count: 0,
            exits: BTreeMap::new(),
            others: Exits::new(),
            last_briefs: Vec::new(),
            last_poll: Nanos::ZERO,
            next_state: now + Nanos::from_millis(100),
            started: now,
            program_ended: None,
            is_paused: false,
        };
        for clause in &options.unseen {
            watch.write(Record::Unseen(clause.clone()));
        }
        for sentence in &options.notes {
            watch.write(Record::Note(sentence.clone()));
        }
        watch.begin_load(options.gpu_clock);
        watch
    }

    /// Polls the job; returns the time to the next poll.
    pub(crate) fn poll(&mut self) -> Duration {
        let now = self.source.now();
        self.update(now, false);
        poll_gap(now.minus(self.started))
    }

    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    pub(crate) fn profile_path(&self) -> Option<PathBuf> {
        self.output.path()
    }

    /// Ends all threads of the watch, so that its process may be forked, and records how the program has ended: no more
    /// may be known of it if the recorder of what it left running is killed. [`Watch::resume`] goes on.
    pub(crate) fn pause(&mut self, exit: Exit) {
        self.stop_sampler();
        self.meters.stop();
        if let Some(digest) = self.digest.wait(END_TIMEOUT) {
            self.write(Record::ProgramDigest(digest));
        }
        self.goes_on(exit);
        self.is_paused = true;
    }

    /// Notes that the program has ended.
    pub(crate) fn program_ended(&mut self) {
        let now = self.source.now();
        self.program_ended.get_or_insert(now);
    }

    /// Records how the program has ended, with the time of its end: a later outcome is that of its job.
    pub(crate) fn goes_on(&mut self, exit: Exit) {
        let duration = self.program_ended.unwrap_or_else(|| self.source.now());
        let outcome = Outcome { exit, duration, reason: self.reason(exit) };
        self.write(Record::Outcome(outcome));
    }

    /// Goes on after [`Watch::pause`], in this process or in a child.
    pub(crate) fn resume(&mut self) {
        self.is_paused = false;
        self.sampler = Sampler::start(&self.nvml, self.source.origin_mono_ns());
        for gpu in &self.output.profile.gpus {
            self.sampler.watch(gpu);
        }
    }

    /// Leaves the profile's file to another process, which goes on with it.
    pub(crate) fn detach(&mut self) {
        self.output.detach();
    }

    /// Hears NVML's last words: they belong to processes that are still known now.
    fn stop_sampler(&mut self) {
        // A refusal right before the end: NVML is asked for the neighbours.
        self.learn_gpus();
        let briefs = self.source.processes(false);
        self.read_refusals(&briefs, &[], true);
        let sampler = std::mem::replace(&mut self.sampler, Sampler::start(&NvmlSource::Off, 0));
        let was_awake = sampler.is_awake();
        // One that has given up is asleep, and has said why.
        let words = sampler.stop(END_TIMEOUT);
        if was_awake || !words.is_empty() {
            let briefs = self.source.processes(true);
            self.hear(words, &briefs);
        }
    }

    /// The end of the job.
    pub(crate) fn finish(mut self, exit: Exit) -> Finished {
        let now = self.source.now();
        self.stop_sampler();
        self.update(now, true);
        self.learn_exits(now);
        self.exits.insert(self.output.profile.job.pid, exit);
        for (pid, exit) in std::mem::take(&mut self.exits) {
            // The last process with this id, if it became other programs on its way.
            let programs = self.output.profile.processes.iter().filter(|it| it.identity.pid == pid);
            let programs = programs.filter(|process| !self.others.is_elsewhere(process.key));
            if let Some(key) =
                programs.max_by_key(|process| process.identity.joined).map(|process| process.key)
            {
                self.put_down_exit(key, exit, now);
            }
        }
        let samples = self.samples.finish();
        self.samples_ready.extend(samples);
        self.write_samples();
        self.write_load(now, true);
        if let Some(digest) = self.digest.wait(END_TIMEOUT) {
            self.write(Record::ProgramDigest(digest));
        }
        self.note_lost_notices();
        // Another process records what goes on: what this one reports ends with the program.
        let duration = self.program_ended.filter(|_| self.is_paused).unwrap_or(now);
        let outcome = Outcome { exit, duration, reason: self.reason(exit) };
        self.write(Record::Outcome(outcome));
        let (profile, path, failure) = self.output.finish();
        self.failures.extend(failure);
        Finished { profile, path, warnings: self.warnings, failures: self.failures }
    }

    /// The exit of a child that the caller waited for.
    pub(crate) fn process_ended(&mut self, pid: u32, exit: Exit) {
        self.exits.insert(pid, exit);
    }

    fn update(&mut self, now: Nanos, last: bool) {
        self.learn_gpus();
        self.read_limits(now);
        self.read_notices();
        let briefs = self.source.processes(self.sampler.is_awake());
        for brief in &briefs {
            self.meet(brief, now);
        }
        let mut refused = Vec::new();
        for brief in &briefs {
            if self.processes.contains_key(&brief.key) {
                let events = self.source.events(brief.key, last || !brief.alive);
                if events.iter().any(|event| matches!(event.kind, EventKind::Refused { .. })) {
                    refused.push(brief.key);
                }
                self.events.add(events);
                self.read_launches(brief, last);
                self.read_ranges(brief, last);
                if brief.alive {
                    self.read_libraries(brief, now);
                }
            }
        }
        let messages = self.sampler.messages();
        self.hear(messages, &briefs);
        self.hear_dcgm();
        if !last {
            self.poll_host(&briefs, now);
        }
        if let Some(digest) = self.digest.poll() {
            self.write(Record::ProgramDigest(digest));
        }
        self.learn_exits(now);
        let due = last || now >= self.next_state;
        let dead = briefs.iter().any(|brief| !brief.alive);
        // Before the dead ones' slots are given back.
        self.read_refusals(&briefs, &refused, due);
        if due || dead {
            self.write_state(&briefs, now, due, last);
        }
        if due {
            self.next_state = next_state(now, briefs.iter().filter(|brief| brief.alive).count());
        }
        if due || self.samples_ready.len() >= SAMPLES_WAITING {
            self.write_samples();
        }
        if due && !last {
            self.write_load(now, false);
        }
        self.last_briefs = briefs;
        self.last_poll = now;
    }

    /// Registers a process that is new.
    fn meet(&mut self, brief: &Brief, now: Nanos) {
        if self.processes.contains_key(&brief.key) || self.left_out.contains(&brief.key) {
            return;
        }
        if self.output.profile.processes.len() + self.processes.len() >= PROCESSES
            && self.output.profile.processes.iter().all(|known| known.key != brief.key)
        {
            self.left_out.insert(brief.key);
            self.left_out_count += 1;
            return;
        }
        // Decided once per process: a timeline does not change its grid.
        let fine_timeline = self.met < FINE_TIMELINES;
        let keeps_launches = self.met < launches::PROCESSES;
        self.met += 1;
        self.others.met(brief);
        let watched = Watched {
            seen: now,
            library_reads: 0,
            frameworks: Vec::new(),
            fine_timeline,
            keeps_launches,
            worked: Nanos::ZERO,
            stacks: stacks::Written::new(now),
            maps: blocks::Written::default(),
            ranges: ranges::Due::new(now),
        };
        self.processes.insert(brief.key, watched);
    }

    fn read_libraries(&mut self, brief: &Brief, now: Nanos) {
        let Some(watched) = self.processes.get_mut(&brief.key) else { return };
        let Some(age) = FRAMEWORK_AGES.get(watched.library_reads) else { return };
        if now.minus(watched.seen) < *age {
            return;
        }
        watched.library_reads += 1;
        let found = brief.pid.map(frameworks::of_process).unwrap_or_default();
        // What was seen once stays: a library may be unloaded.
        for framework in found {
            match watched.frameworks.iter_mut().find(|known| known.name == framework.name) {
                Some(known) => known.version = known.version.take().or(framework.version),
                None => watched.frameworks.push(framework),
            }
        }
    }

    /// Takes launches that were timed, of the first processes only.
    fn read_launches(&mut self, brief: &Brief, last: bool) {
        let is_wanted = self.processes.get(&brief.key).is_some_and(|watched| watched.keeps_launches);
        if is_wanted && self.output.profile.gpu_clock != GpuClock::Absent {
            self.launches.add(self.source.launches(brief.key, last || !brief.alive));
        }
    }

    /// Takes single ranges and marks, of the first processes only.
    fn read_ranges(&mut self, brief: &Brief, last: bool) {
        if self.processes.get(&brief.key).is_some_and(|watched| watched.keeps_launches) {
            self.ranges.add(self.source.range_events(brief.key, last || !brief.alive));
        }
    }

    fn learn_gpus(&mut self) {
        let mut gpus: Vec<Gpu> = self.source.gpus();
        for gpu in &mut gpus {
            gpu.driver_version.clone_from(&self.driver.0);
            gpu.cuda_version = gpu.cuda_version.or(self.driver.1);
        }
        if gpus == self.output.profile.gpus {
            return;
        }
        for gpu in &gpus {
            if self.output.profile.gpu(gpu.index).is_none() {
                self.sampler.watch(gpu);
            }
        }
        self.write(Record::Gpus(gpus));
    }

    /// Says a sentence to the user and to the profile's readers.
    pub(crate) fn note(&mut self, sentence: String) {
        self.warnings.push(sentence.clone());
        self.write(Record::Note(sentence));
    }

    fn write(&mut self, record: Record) {
        let profile = &self.output.profile;
        // A watch that was resumed may find the same once more.
        let is_known = match &record {
            Record::Note(sentence) => profile.notes.contains(&Note::Collector(sentence.clone())),
            Record::Unmeasured(clause) => profile.unmeasured.contains(clause),
            _ => false,
        };
        if is_known {
            return;
        }
        let failure = self.output.add(record);
        self.failures.extend(failure);
    }

    fn write_samples(&mut self) {
        let samples = std::mem::take(&mut self.samples_ready);
        if !samples.is_empty() {
            self.write(Record::Samples(samples));
        }
    }

    /// Writes what changed: of all processes if a state is due, else of the
    /// dead ones. Dead processes' slots are given back once they are written.
    fn write_state(&mut self, briefs: &[Brief], now: Nanos, due: bool, last: bool) {
        let mut written: Vec<ProcessKey> = Vec::new();
        let mut head = State {
            t: now,
            events: self.events.take(),
            events_thinned: self.events.thinned,
            processes_not_kept: self.left_out_count,
            ..State::default()
        };
        let mut records = 0;
        let mut work = Vec::new();
        for brief in briefs.iter().filter(|brief| due || !brief.alive) {
            if !self.processes.contains_key(&brief.key) {
                // Left out: its slot is free for others.
                if !brief.alive && self.left_out.remove(&brief.key) {
                    self.release(brief.key);
                }
                continue;
            }
            let Some(process) = self.process(brief, now) else { continue };
            let known = self.output.profile.processes.iter().rfind(|known| known.key == brief.key);
            let whole = last || !brief.alive;
            let nothing = Timings::default();
            let timings =
                timings::news(known.map_or(&nothing, |known| &known.timings), &process.timings, whole);
            let before = known.map(|known| known.throttling).unwrap_or_default();
            let throttling = process.throttling.news(&before, whole);
            let recorded = known.and_then(|known| known.kernels_mode);
            let mode = process.kernels_mode.filter(|mode| recorded != Some(*mode));
            if let Some(delta) = delta(known, &process, whole) {
                // One frame per process: none outgrows the format's limit, and
                // a torn one takes no other process with it. The first
                // carries the events.
                let state = State { processes: vec![delta], ..std::mem::take(&mut head) };
                head = State { t: now, events: Vec::new(), ..state_head(&state) };
                self.write(Record::State(state));
                records += 1;
            }
            if let Some(kernels) = mode {
                self.write(Record::Recording(Recording { key: process.key, kernels }));
            }
            if let Some(timings) = timings {
                self.write(Record::Timings(timings));
            }
            if let Some(throttling) = throttling {
                self.write(Record::Throttling(throttling));
            }
            self.write_stacks(&process, now, whole);
            self.write_ranges(&process, now, whole);
            work.extend(self.worked(&process, now));
            if whole {
                self.launches.end(brief.key);
                self.ranges.end(brief.key);
            }
            if !brief.alive {
                self.others.ended(brief.key, process.state.end == End::Exec);
                written.push(brief.key);
            }
        }
        if records == 0 && (due || !head.events.is_empty()) {
            self.write(Record::State(head));
        }
        if !work.is_empty() {
            self.write(Record::KernelActivity(work));
        }
        let launches = self.launches.take();
        if !launches.is_empty() {
            self.write(Record::Launches(launches));
        }
        let ranges = self.ranges.take();
        if !ranges.is_empty() {
            self.write(Record::RangeEvents(ranges));
        }
        for key in written {
            self.processes.remove(&key);
            self.remainders.forget(key);
            self.release(key);
        }
    }

    /// Gives the slot of a dead process back, unless another process still has to record it.
    fn release(&mut self, key: ProcessKey) {
        if !self.output.is_detached() {
            self.source.release(key);
        }
    }

    /// Everything about a process, from all sources.
    fn process(&mut self, brief: &Brief, now: Nanos) -> Option<Process> {
        let mut process = self.source.details(brief.key)?;
        self.drop_false_times(&mut process);
        if let Some(watched) = self.processes.get(&brief.key) {
            if !watched.fine_timeline {
                for timeline in &mut process.timelines {
                    timeline.points = coarse(&timeline.points);
                }
            }
            // Libraries show versions; what only the shim has seen is added.
            let by_shim = std::mem::replace(&mut process.state.frameworks, watched.frameworks.clone());
            let known = |framework: &Framework| watched.frameworks.iter().any(|f| f.name == framework.name);
            process.state.frameworks.extend(by_shim.into_iter().filter(|framework| !known(framework)));
        }
        process.state.remainders = self.remainders.of(brief.key);
        self.fill_contexts(&mut process);
        if !brief.alive && process.state.ended.is_none() {
            process.state.ended = Some(now);
        }
        Some(process)
    }

    /// Gives a process the known context overhead of each GPU on which it was neither charged nor measured.
    fn fill_contexts(&mut self, process: &mut Process) {
        let state = &mut process.state;
        let measured = |gpu: GpuIndex| state.remainders.iter().any(|remainder| remainder.gpu == gpu);
        let lacking = |account: &&mut Account| {
            account.context_overhead.is_none() && !account.peak.is_zero() && !measured(account.gpu)
        };
        let mut lacking = state.accounts.iter_mut().filter(lacking).peekable();
        if self.contexts.is_empty() || lacking.peek().is_none() {
            return;
        }
        let gpus = self.source.gpus();
        for account in lacking {
            let gpu = gpus.iter().find(|gpu| gpu.index == account.gpu);
            account.context_overhead = gpu.and_then(|gpu| self.contexts.get(&gpu.name)).copied().map(Bytes);
        }
    }
}

/// The parts of a state that every one repeats.
fn state_head(state: &State) -> State {
    State {
        events_thinned: state.events_thinned,
        processes_not_kept: state.processes_not_kept,
        ..State::default()
    }
}
