//! Watching a job: what its processes do goes into its profile.

use crate::delta::delta;
use crate::digest::PendingDigest;
use crate::frameworks;
use crate::nvml::{Message, NvmlSource, Sampler};
use crate::output::{Output, ProfileFile};
use crate::pace::{EventThinner, SampleThinner, next_state, poll_gap};
use crate::remainder::{Around, Remainders};
use crate::segment_source::EntryName;
use crate::source::{Brief, Source};
use radrm_profile::model::{
    End, Exit, Framework, Gpu, Job, NvmlSample, Outcome, Process, ProcessKey, Profile, Reason,
};
use radrm_profile::{Nanos, ProcessDelta, Record, State};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

/// Processes that a profile keeps one by one. A job that starts more (a build
/// whose every step asks for the GPU) has them counted.
const PROCESSES: usize = 4096;

/// Ages at which a process's libraries are looked at: frameworks load theirs
/// within seconds, and some only with the first model.
const FRAMEWORK_AGES: [Nanos; 5] =
    [Nanos::ZERO, Nanos::from_millis(300), Nanos::from_secs(2), Nanos::from_secs(10), Nanos::from_secs(60)];

/// Samples that wait at most for the next state.
const SAMPLES_WAITING: usize = 256;

/// How long the end of a job waits for NVML's thread and for the digest.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a watch does besides reading the segment.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Where the profile goes.
    pub profile: ProfileFile,
    /// Which NVML is asked.
    pub nvml: NvmlSource,
    /// Compute the SHA-256 of the program (on a thread).
    pub digest: bool,
    /// Names of the shim's entry points by number. Where it knows none, a
    /// refused request carries the name of its family (`cuMemAlloc`).
    pub entry_name: EntryName,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions {
            profile: ProfileFile::Default,
            nvml: NvmlSource::System,
            digest: true,
            entry_name: |_| None,
        }
    }
}

/// What a watch leaves behind.
#[derive(Debug)]
pub struct Finished {
    /// The profile, complete also where its file is not.
    pub profile: Profile,
    /// Its file, if there is one.
    pub path: Option<PathBuf>,
    /// Sentences for the user that were not taken before.
    pub warnings: Vec<String>,
}

/// A watch over a job. Never fails and never waits: what cannot be done is
/// said once and left out.
pub(crate) struct Watch<S> {
    source: S,
    output: Output,
    warnings: Vec<String>,
    sampler: Sampler,
    nvml_silent: NvmlSilence,
    digest: PendingDigest,
    driver: (Option<String>, Option<u32>),
    events: EventThinner,
    samples: SampleThinner,
    samples_ready: Vec<NvmlSample>,
    remainders: Remainders,
    /// Living processes and dead ones that are not saved yet.
    processes: HashMap<ProcessKey, Watched>,
    /// Processes beyond [`PROCESSES`].
    left_out: HashSet<ProcessKey>,
    left_out_count: u64,
    /// Exits of children, by process id.
    exits: BTreeMap<u32, Exit>,
    last_briefs: Vec<Brief>,
    last_poll: Nanos,
    next_state: Nanos,
    /// States so far were written up to here.
    started: Nanos,
}

/// Samples in a row in which NVML listed processes, but none of ours.
#[derive(Default)]
struct NvmlSilence {
    samples: u32,
    said: bool,
}

struct Watched {
    seen: Nanos,
    looked: usize,
    frameworks: Vec<Framework>,
}

impl<S: Source> Watch<S> {
    pub(crate) fn start(source: S, job: Job, options: &WatchOptions) -> Watch<S> {
        let digest = match &job.program {
            Some(program) if options.digest => PendingDigest::start(program.into()),
            _ => PendingDigest::none(),
        };
        let sampler = Sampler::start(&options.nvml, source.origin_mono_ns());
        let (output, warning) = Output::begin(job, &options.profile);
        let now = source.now();
        Watch {
            source,
            output,
            warnings: warning.into_iter().collect(),
            sampler,
            nvml_silent: NvmlSilence::default(),
            digest,
            driver: (None, None),
            events: EventThinner::default(),
            samples: SampleThinner::default(),
            samples_ready: Vec::new(),
            remainders: Remainders::default(),
            processes: HashMap::new(),
            left_out: HashSet::new(),
            left_out_count: 0,
            exits: BTreeMap::new(),
            last_briefs: Vec::new(),
            last_poll: Nanos::ZERO,
            next_state: now + Nanos::from_millis(100),
            started: now,
        }
    }

    /// Looks at the job; says how long to wait for the next look.
    pub(crate) fn poll(&mut self) -> Duration {
        let now = self.source.now();
        self.look(now, false);
        poll_gap(now.saturating_sub(self.started))
    }

    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    pub(crate) fn profile_path(&self) -> Option<PathBuf> {
        self.output.path()
    }

    /// The end of the job.
    pub(crate) fn finish(mut self, exit: Exit) -> Finished {
        let now = self.source.now();
        // NVML's last words first: they belong to processes that are still
        // known now.
        let sampler = std::mem::replace(&mut self.sampler, Sampler::start(&NvmlSource::Off, 0));
        if sampler.is_awake() {
            let briefs = self.source.processes(true);
            self.hear(sampler.stop(PATIENCE), &briefs);
        }
        self.look(now, true);
        self.exits.insert(self.output.profile.job.pid, exit);
        for (pid, exit) in std::mem::take(&mut self.exits) {
            self.put_down_exit(pid, exit, now);
        }
        let samples = self.samples.finish();
        self.samples_ready.extend(samples);
        self.write_samples();
        if let Some(digest) = self.digest.wait(PATIENCE) {
            self.write(Record::ProgramDigest(digest));
        }
        for sentence in self.source.refusals() {
            self.write(Record::Note(sentence));
        }
        let outcome = Outcome { exit, duration: now, reason: self.reason(exit) };
        self.write(Record::Outcome(outcome));
        let (profile, path, warning) = self.output.finish();
        self.warnings.extend(warning);
        Finished { profile, path, warnings: self.warnings }
    }

    /// The exit of a child that the caller waited for.
    pub(crate) fn process_ended(&mut self, pid: u32, exit: Exit) {
        self.exits.insert(pid, exit);
    }

    /// Puts down an exit that is known exactly: that of the last process with
    /// this id, if it became other programs on its way.
    fn put_down_exit(&mut self, pid: u32, exit: Exit, now: Nanos) {
        let end = match exit {
            Exit::Code(code) => End::Exited(Some(code)),
            Exit::Signal(signal) => End::Signal(signal),
            Exit::NotStarted | Exit::Unknown => return,
        };
        let profile = &self.output.profile;
        let programs = profile.processes.iter().filter(|process| process.identity.pid == pid);
        let Some(process) = programs.max_by_key(|process| process.identity.joined) else { return };
        if process.state.end == End::Exec {
            return;
        }
        let mut state = process.state.clone();
        state.end = end;
        state.ended = state.ended.or(Some(now));
        let delta = ProcessDelta { key: process.key, state, ..ProcessDelta::default() };
        let record = State {
            t: now,
            processes: vec![delta],
            events: Vec::new(),
            events_thinned: profile.events_thinned,
            processes_not_kept: profile.processes_not_kept,
        };
        self.write(Record::State(record));
    }

    /// A program that ends badly after memory was refused ended because of
    /// that, as far as can be told from outside.
    fn reason(&self, exit: Exit) -> Option<Reason> {
        let refused = || {
            let states = self.output.profile.processes.iter().map(|process| &process.state);
            states.flat_map(|state| &state.failures).any(|failure| failure.out_of_memory())
        };
        (!exit.success() && exit != Exit::NotStarted && refused()).then_some(Reason::OutOfGpuMemory)
    }

    fn look(&mut self, now: Nanos, last: bool) {
        self.learn_gpus();
        let briefs = self.source.processes(self.sampler.is_awake());
        for brief in &briefs {
            self.meet(brief, now);
        }
        for brief in &briefs {
            if self.processes.contains_key(&brief.key) {
                let events = self.source.events(brief.key, last || !brief.alive);
                self.events.add(events);
                if brief.alive {
                    self.look_at_libraries(brief, now);
                }
            }
        }
        let messages = self.sampler.messages();
        self.hear(messages, &briefs);
        if let Some(digest) = self.digest.poll() {
            self.write(Record::ProgramDigest(digest));
        }
        let due = last || now >= self.next_state;
        let dead = briefs.iter().any(|brief| !brief.alive);
        if due || dead {
            self.write_state(&briefs, now, due, last);
        }
        if due {
            self.next_state = next_state(now, briefs.iter().filter(|brief| brief.alive).count());
        }
        if due || self.samples_ready.len() >= SAMPLES_WAITING {
            self.write_samples();
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
        self.processes.insert(brief.key, Watched { seen: now, looked: 0, frameworks: Vec::new() });
    }

    fn look_at_libraries(&mut self, brief: &Brief, now: Nanos) {
        let Some(watched) = self.processes.get_mut(&brief.key) else { return };
        let Some(age) = FRAMEWORK_AGES.get(watched.looked) else { return };
        if now.saturating_sub(watched.seen) < *age {
            return;
        }
        watched.looked += 1;
        let found = frameworks::of_process(brief.pid);
        // What was seen once stays: a library may be unloaded.
        for framework in found {
            match watched.frameworks.iter_mut().find(|known| known.name == framework.name) {
                Some(known) => known.version = known.version.take().or(framework.version),
                None => watched.frameworks.push(framework),
            }
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

    fn hear(&mut self, messages: Vec<Message>, briefs: &[Brief]) {
        for message in messages {
            match message {
                Message::Driver(driver, cuda) => {
                    self.driver = (driver, cuda);
                    self.learn_gpus();
                }
                Message::Sample(mut sample) => {
                    let listed = sample.processes.len();
                    let before = std::mem::take(&mut self.last_briefs);
                    let around = Around { before: &before, before_t: self.last_poll, after: briefs };
                    self.remainders.compare(&mut sample, &around);
                    self.last_briefs = before;
                    self.notice_silence(listed, sample.processes.len(), briefs);
                    self.samples.add(sample);
                }
                Message::Unusable(why) => self.note(format!(
                    "NVML cannot be used ({why}): its figures of memory, load and power are missing"
                )),
                Message::NoSuchGpu(gpu, why) => self.note(format!(
                    "NVML tells nothing of GPU {} ({why}): its figures of it are missing",
                    gpu.0
                )),
            }
        }
        let ready = self.samples.take();
        self.samples_ready.extend(ready);
    }

    /// In a container NVML may speak of process ids of the host.
    fn notice_silence(&mut self, listed: usize, ours: usize, briefs: &[Brief]) {
        let holding =
            briefs.iter().any(|brief| brief.alive && brief.held.iter().any(|held| !held.1.is_zero()));
        if listed == 0 || ours > 0 || !holding {
            self.nvml_silent.samples = 0;
            return;
        }
        self.nvml_silent.samples += 1;
        if self.nvml_silent.samples == 20 && !std::mem::replace(&mut self.nvml_silent.said, true) {
            self.note(
                "NVML lists processes but none of this job's (in a container it speaks of the host's process ids): \
                 its figures per process are missing"
                    .into(),
            );
        }
    }

    /// Says a sentence to the user and to the profile's readers.
    fn note(&mut self, sentence: String) {
        self.warnings.push(sentence.clone());
        self.write(Record::Note(sentence));
    }

    fn write(&mut self, record: Record) {
        let warning = self.output.add(record);
        self.warnings.extend(warning);
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
        for brief in briefs.iter().filter(|brief| due || !brief.alive) {
            if !self.processes.contains_key(&brief.key) {
                // Left out: its slot is free for others.
                if !brief.alive && self.left_out.remove(&brief.key) {
                    self.source.release(brief.key);
                }
                continue;
            }
            let Some(process) = self.process(brief, now) else { continue };
            let known = self.output.profile.processes.iter().rfind(|known| known.key == brief.key);
            let whole = last || !brief.alive;
            if let Some(delta) = delta(known, &process, whole) {
                // One frame per process: none outgrows the format's limit, and
                // a torn one takes no other process with it. The first
                // carries the events.
                let state = State { processes: vec![delta], ..std::mem::take(&mut head) };
                head = State { t: now, events: Vec::new(), ..state_head(&state) };
                self.write(Record::State(state));
                records += 1;
            }
            if !brief.alive {
                written.push(brief.key);
            }
        }
        if records == 0 && (due || !head.events.is_empty()) {
            self.write(Record::State(head));
        }
        for key in written {
            self.processes.remove(&key);
            self.remainders.forget(key);
            self.source.release(key);
        }
    }

    /// Everything about a process, from all sources.
    fn process(&mut self, brief: &Brief, now: Nanos) -> Option<Process> {
        let mut process = self.source.details(brief.key)?;
        if let Some(watched) = self.processes.get(&brief.key) {
            // Libraries tell versions; what only the shim has seen is added.
            let by_shim = std::mem::replace(&mut process.state.frameworks, watched.frameworks.clone());
            let known = |framework: &Framework| watched.frameworks.iter().any(|f| f.name == framework.name);
            process.state.frameworks.extend(by_shim.into_iter().filter(|framework| !known(framework)));
        }
        process.state.remainders = self.remainders.of(brief.key);
        if !brief.alive && process.state.ended.is_none() {
            process.state.ended = Some(now);
        }
        Some(process)
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

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::Bytes;
    use radrm_profile::model::{
        Account, Event, EventKind, FailedRequest, GpuIndex, Identity, Kernel, RESULT_OUT_OF_MEMORY, Timeline,
        TimelinePoint,
    };
    use std::cell::RefCell;
    use std::path::Path;
    use std::rc::Rc;

    /// A job whose every move the test decides.
    #[derive(Default)]
    struct Job0 {
        now: Nanos,
        gpus: Vec<Gpu>,
        /// Slots; `None` in the second place once it is released.
        processes: BTreeMap<u32, (bool, Process)>,
        released: Vec<ProcessKey>,
        events: Vec<Event>,
        details: usize,
    }

    #[derive(Clone, Default)]
    struct Fake(Rc<RefCell<Job0>>);

    impl Source for Fake {
        fn now(&self) -> Nanos {
            self.0.borrow().now
        }
        fn origin_mono_ns(&self) -> u64 {
            0
        }
        fn gpus(&mut self) -> Vec<Gpu> {
            self.0.borrow().gpus.clone()
        }
        fn processes(&mut self, _: bool) -> Vec<Brief> {
            let job = self.0.borrow();
            let brief = |(alive, process): &(bool, Process)| Brief {
                key: process.key,
                pid: process.identity.pid,
                alive: *alive,
                held: process.state.accounts.iter().map(|a| (a.gpu.0, a.now)).collect(),
            };
            job.processes.values().map(brief).collect()
        }
        fn details(&mut self, key: ProcessKey) -> Option<Process> {
            self.0.borrow_mut().details += 1;
            let job = self.0.borrow();
            job.processes.values().find(|(_, process)| process.key == key).map(|(_, process)| process.clone())
        }
        fn events(&mut self, key: ProcessKey, _: bool) -> Vec<Event> {
            let mut job = self.0.borrow_mut();
            job.events.extract_if(.., |event| event.process == key).collect()
        }
        fn release(&mut self, key: ProcessKey) {
            let mut job = self.0.borrow_mut();
            job.processes.retain(|_, (_, process)| process.key != key);
            job.released.push(key);
        }
        fn refusals(&mut self) -> Vec<String> {
            Vec::new()
        }
    }

    impl Fake {
        fn add(&self, slot: u32, generation: u64, pid: u32, held: u64) {
            let now = self.0.borrow().now;
            let mut process = Process {
                key: ProcessKey { slot, generation },
                identity: Identity { pid, joined: now, ..Identity::default() },
                ..Process::default()
            };
            process.state.accounts.push(Account::default());
            self.0.borrow_mut().processes.insert(slot, (true, process));
            self.hold(slot, held);
        }

        fn hold(&self, slot: u32, bytes: u64) {
            let mut job = self.0.borrow_mut();
            let t = Nanos(job.now.0 >> 20 << 20);
            let (_, process) = job.processes.get_mut(&slot).unwrap();
            let account = &mut process.state.accounts[0];
            account.now = Bytes(bytes);
            account.peak = account.peak.max(account.now);
            let point = TimelinePoint {
                t,
                span: Nanos(1 << 20),
                max_total: Bytes(bytes),
                ..TimelinePoint::default()
            };
            if process.timelines.is_empty() {
                process.timelines.push(Timeline { gpu: GpuIndex(0), points: Vec::new() });
            }
            process.timelines[0].extend(vec![point]);
        }

        fn kill(&self, slot: u32) {
            let mut job = self.0.borrow_mut();
            let (alive, process) = job.processes.get_mut(&slot).unwrap();
            *alive = false;
            process.state.end = End::Vanished;
        }

        fn at(&self, ms: u64) {
            self.0.borrow_mut().now = Nanos::from_millis(ms);
        }
    }

    fn options(profile: ProfileFile) -> WatchOptions {
        WatchOptions { profile, nvml: NvmlSource::Off, digest: false, ..WatchOptions::default() }
    }

    fn watch(fake: &Fake, file: &Path) -> Watch<Fake> {
        let job = Job { pid: 7, command: vec!["train".into()], ..Job::default() };
        Watch::start(fake.clone(), job, &options(ProfileFile::At(file.into())))
    }

    #[test]
    fn the_file_and_the_memory_say_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.radrm");
        let fake = Fake::default();
        fake.0.borrow_mut().gpus.push(Gpu { name: "X".into(), ..Gpu::default() });
        let mut watch = watch(&fake, &file);
        fake.add(0, 1, 7, 100);
        for ms in (0..5_000).step_by(50) {
            fake.at(ms);
            fake.hold(0, 100 + ms);
            assert!(watch.poll() >= Duration::from_millis(10));
        }
        assert!(watch.take_warnings().is_empty());
        let before = Profile::open(&file).unwrap();
        assert!(before.outcome.is_none() && before.processes[0].state.accounts[0].now.0 > 3_000);

        fake.at(5_100);
        fake.hold(0, 1);
        let finished = watch.finish(Exit::Code(3));
        assert!(finished.warnings.is_empty());
        assert_eq!(Profile::open(&file).unwrap(), finished.profile);
        let process = &finished.profile.processes[0];
        assert_eq!((process.state.accounts[0].now, process.state.accounts[0].peak), (Bytes(1), Bytes(5_050)));
        assert_eq!(process.state.end, End::Exited(Some(3)));
        assert_eq!(process.timelines, fake.0.borrow().processes[&0].1.timelines);
        let outcome = finished.profile.outcome.unwrap();
        assert_eq!(
            (outcome.exit, outcome.duration, outcome.reason),
            (Exit::Code(3), Nanos::from_millis(5_100), None)
        );
    }

    #[test]
    fn the_dead_are_saved_before_their_slot_is_released() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.radrm");
        let fake = Fake::default();
        let mut watch = watch(&fake, &file);
        fake.at(2_000);
        fake.add(0, 1, 7, 11);
        fake.add(1, 1, 8, 22);
        watch.poll();
        fake.at(2_010);
        fake.hold(1, 33);
        fake.kill(1);
        watch.poll();
        assert_eq!(fake.0.borrow().released, [ProcessKey { slot: 1, generation: 1 }]);
        let saved = Profile::open(&file).unwrap();
        let dead = saved.processes.iter().find(|process| process.identity.pid == 8).unwrap();
        assert_eq!((dead.state.accounts[0].now, dead.state.end), (Bytes(33), End::Vanished));
        assert_eq!(dead.state.ended, Some(Nanos::from_millis(2_010)));

        // The slot is used again.
        fake.at(2_020);
        fake.add(1, 2, 9, 44);
        watch.poll();
        watch.process_ended(8, Exit::Code(4));
        let profile = watch.finish(Exit::Signal(9)).profile;
        assert_eq!(profile.processes[1].state.end, End::Exited(Some(4)));
        let pids: Vec<u32> = profile.processes.iter().map(|process| process.identity.pid).collect();
        assert_eq!(pids, [7, 8, 9]);
        assert_eq!(profile.processes[0].state.end, End::Signal(9));
        assert_eq!(profile.processes[2].state.end, End::Running);
    }

    #[test]
    fn the_program_s_end_is_known_even_if_it_was_saved_before() {
        let fake = Fake::default();
        let mut watch =
            Watch::start(fake.clone(), Job { pid: 7, ..Job::default() }, &options(ProfileFile::None));
        fake.add(0, 1, 7, 5);
        fake.at(10);
        watch.poll();
        fake.kill(0);
        watch.poll();
        assert!(fake.0.borrow().processes.is_empty());
        let profile = watch.finish(Exit::Code(1)).profile;
        assert_eq!(profile.processes[0].state.end, End::Exited(Some(1)));
        assert_eq!(profile.processes[0].state.accounts[0].now, Bytes(5));
    }

    #[test]
    fn a_refusal_before_a_bad_end_is_the_reason() {
        let run = |exit, result| {
            let fake = Fake::default();
            let watch =
                Watch::start(fake.clone(), Job { pid: 7, ..Job::default() }, &options(ProfileFile::None));
            fake.add(0, 1, 7, 5);
            let failure = FailedRequest { result, ..FailedRequest::default() };
            fake.0.borrow_mut().processes.get_mut(&0).unwrap().1.state.failures.push(failure);
            watch.finish(exit).profile.outcome.unwrap().reason
        };
        assert_eq!(run(Exit::Code(1), RESULT_OUT_OF_MEMORY), Some(Reason::OutOfGpuMemory));
        assert_eq!(run(Exit::Signal(6), RESULT_OUT_OF_MEMORY), Some(Reason::OutOfGpuMemory));
        assert_eq!(run(Exit::Code(0), RESULT_OUT_OF_MEMORY), None);
        assert_eq!(run(Exit::Code(1), 1), None);
    }

    #[test]
    fn processes_beyond_the_limit_are_counted_and_released() {
        let fake = Fake::default();
        let mut watch = Watch::start(fake.clone(), Job::default(), &options(ProfileFile::None));
        for i in 0..PROCESSES as u64 + 50 {
            fake.at(i);
            fake.add(0, i, 1_000_000 + i as u32, 5);
            watch.poll();
            fake.kill(0);
            watch.poll();
        }
        let profile = watch.finish(Exit::Code(0)).profile;
        assert_eq!(profile.processes.len(), PROCESSES);
        assert_eq!(profile.processes_not_kept, 50);
        assert!(fake.0.borrow().processes.is_empty());
    }

    /// Ten minutes of a program that allocates all the time.
    #[test]
    fn ten_busy_minutes_make_a_small_file() {
        let small = ten_minutes(1, 50);
        let large = ten_minutes(8, 500);
        println!("1 GPU, 50 kernels: {small} bytes; 8 GPUs, 500 kernels: {large} bytes");
        assert!(small < 1 << 20, "{small} bytes");
        assert!(large < 6 << 20, "{large} bytes");
    }

    /// The size of the file after ten minutes.
    fn ten_minutes(gpus: usize, kernels: usize) -> u64 {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.radrm");
        let fake = Fake::default();
        let mut watch = watch(&fake, &file);
        fake.add(0, 1, 7, 0);
        let mut held = 0;
        for tick in 0..60_000u64 {
            let ms = 10 * tick;
            fake.at(ms);
            held =
                u64::wrapping_mul(held, 6364136223846793005).wrapping_add(1442695040888963407) % (140 << 30);
            {
                let mut job = fake.0.borrow_mut();
                let (_, process) = job.processes.get_mut(&0).unwrap();
                if process.kernels.len() < kernels {
                    let id = process.kernels.len() as u32;
                    process.kernels.push(Kernel { id, name: format!("{id:0300}"), ..Kernel::default() });
                }
                for kernel in &mut process.kernels {
                    kernel.launches += 1000;
                    kernel.threads += 1_000_000_000;
                }
                process.timelines.resize_with(gpus, Timeline::default);
                // The segment's spans: 1/256 to 1/512 of the time.
                let span = (1u64 << 20).max((Nanos::from_millis(ms).0 / 512 + 1).next_power_of_two());
                let t = Nanos(Nanos::from_millis(ms).0 / span * span);
                for (gpu, timeline) in process.timelines.iter_mut().enumerate() {
                    let mut kinds = [Bytes::ZERO; radrm_profile::model::KIND_COUNT];
                    (kinds[0], kinds[1], kinds[7]) = (Bytes(held), Bytes(held / 3), Bytes(held / 7));
                    let point = TimelinePoint {
                        t,
                        span: Nanos(span),
                        max_total: Bytes(held / 3 * 4),
                        at_max: kinds,
                        last: kinds.map(|b| Bytes(b.0 / 2)),
                    };
                    timeline.gpu = GpuIndex(gpu as u8);
                    timeline.extend(vec![point]);
                }
                let key = ProcessKey { slot: 0, generation: 1 };
                for size in [held, held / 2] {
                    let kind = EventKind::Allocated { kind: 0, size: Bytes(size) };
                    job.events.push(Event { t: Nanos::from_millis(ms), process: key, gpu: None, kind });
                }
            }
            if tick % 20 == 0 {
                watch.poll();
            }
        }
        let finished = watch.finish(Exit::Code(0));
        assert_eq!(Profile::open(&file).unwrap(), finished.profile);
        std::fs::metadata(&file).unwrap().len()
    }
}
