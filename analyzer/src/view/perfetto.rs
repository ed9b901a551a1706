//! A profile as a trace in the JSON trace-event format, which ui.perfetto.dev and chrome://tracing open.
//!
//! Launches that were timed are slices, one track for each stream of a process. They are a sample, and say so; how exactly
//! each is placed is in its arguments (see [`launches`]).
//!
//! Every GPU and the host are processes of their own, after the highest process id that Linux gives, so
//! that their counters stand together. Times are microseconds since the job's start.

use crate::model::launches::{self, Placed};
use crate::model::ranges::{event_name, thread_numbers};
use crate::model::{Summary, WindowSummary, names};
use radrm_profile::model::{
    COPY_WAYS, Event, EventKind, FailedRequest, GpuIndex, GpuSpan, KIND_COUNT, Kernel, KernelActivity,
    KernelSpan, Kind, PredictedStep, Process, Profile, RangeEvent, Share, TimedLaunch,
};
use radrm_profile::steps::gpu_steps;
use radrm_profile::{Bytes, Nanos};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The host's place among the processes; GPUs follow. Process ids of Linux end below.
const HOST: u64 = 1 << 22;

/// The predicted step's place, behind all GPUs.
const PREDICTED: u64 = HOST + 512;

/// Threads of the tracks of streams are numbered from here.
const STREAMS: u64 = 1 << 23;

/// Threads of the tracks of phases are numbered from here.
const RANGES: u64 = 3 << 22;

/// Kernels that a process's slice names.
const KERNELS: usize = 20;

/// The trace, whole, with a line end.
pub fn perfetto(profile: &Profile, summary: &Summary) -> String {
    let mut trace = Trace { events: Vec::new() };
    trace.job(profile, summary);
    for gpu in &profile.gpus {
        trace.gpu(profile, gpu.index, &gpu.name);
    }
    let mut launches = launches::by_process(profile);
    for process in &profile.processes {
        trace.process(profile, process);
        trace.ranges(profile, process);
        trace.launches(profile, process, &launches.remove(&process.key).unwrap_or_default());
    }
    trace.host(profile);
    if let Some(step) = &profile.step {
        trace.predicted(step);
    }
    for event in &profile.events {
        trace.event(profile, event);
    }
    // Readers of a trace as a stream need it by time, and names of processes first.
    let at = |event: &Value| event["ts"].as_f64().unwrap_or(-1.0);
    trace.events.sort_by(|a, b| at(a).total_cmp(&at(b)));
    let mut about = json!({
        "command": summary.command_line(),
        "host": profile.job.host,
        "radrm": profile.job.radrm_version,
    });
    if let Some(machine) = &profile.job.emulated {
        about["emulated"] = json!(format!("{machine}: no figure was measured on a GPU"));
    }
    let start = profile.job.start_unix_ns;
    let whole = json!({
        "displayTimeUnit": "ns",
        "otherData": about,
        "metadata": { "start_unix_ns": start.to_string() },
        "traceEvents": trace.events,
    });
    format!("{whole}\n")
}

struct Trace {
    events: Vec<Value>,
}

/// Microseconds.
fn us(t: Nanos) -> f64 {
    t.0 as f64 / 1000.0
}

fn gpu_pid(gpu: GpuIndex) -> u64 {
    HOST + 1 + u64::from(gpu.0)
}

/// The thread of a process's tracks: its first, so that they stand directly below its name.
fn place(process: &Process) -> (u64, u64) {
    let pid = u64::from(process.identity.pid);
    (pid, pid)
}

impl Trace {
    fn name(&mut self, pid: u64, name: &str, order: u64) {
        self.events.push(json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}));
        let args = json!({"sort_index": order});
        self.events.push(json!({"ph": "M", "name": "process_sort_index", "pid": pid, "args": args}));
    }

    /// A counter with one series for each argument.
    fn counter(&mut self, pid: u64, name: &str, t: Nanos, series: Map<String, Value>) {
        if !series.is_empty() {
            self.events.push(json!({"ph": "C", "name": name, "pid": pid, "ts": us(t), "args": series}));
        }
    }

    fn slice(&mut self, (pid, tid): (u64, u64), name: &str, from: Nanos, to: Nanos, args: Value) {
        let duration = us(to.minus(from));
        self.events.push(
            json!({"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": us(from), "dur": duration, "args": args}),
        );
    }

    /// `scope`: `t` marks a thread, `p` a process.
    fn mark(&mut self, (pid, tid): (u64, u64), scope: &str, name: &str, t: Nanos, args: Value) {
        self.events.push(
            json!({"ph": "i", "name": name, "pid": pid, "tid": tid, "ts": us(t), "s": scope, "args": args}),
        );
    }

    fn job(&mut self, profile: &Profile, summary: &Summary) {
        self.name(HOST, "host", 0);
        let args = json!({
            "outcome": summary.outcome.status,
            "limits": summary.limits.sentence,
            "launches": summary.has_all_kernels().then_some(summary.launches),
        });
        self.slice((HOST, HOST), summary.command_line().raw(), Nanos::ZERO, profile.duration(), args);
    }

    /// Adds a GPU's counters: memory of all processes, and its load.
    fn gpu(&mut self, profile: &Profile, gpu: GpuIndex, name: &str) {
        let pid = gpu_pid(gpu);
        self.name(pid, &format!("GPU {} {name}", gpu.0), pid - HOST);
        let steps = gpu_steps(profile, gpu);
        let used = used_kinds(steps.iter().map(|step| &step.kinds));
        for step in &steps {
            self.counter(pid, "memory of the job", step.t, kinds(&used, &step.kinds));
        }
        for sample in profile.samples.iter().filter(|sample| sample.gpu == gpu) {
            let mut series = Map::new();
            series.insert("in use".into(), json!(sample.used.0));
            if let Some(job) = sample.processes.iter().filter_map(|p| p.used).reduce(|a, b| a + b) {
                series.insert("this job".into(), json!(job.0));
            }
            self.counter(pid, "memory by NVML", sample.t, series);
        }
        let spans: Vec<&GpuSpan> = profile.activity.iter().filter(|span| span.gpu == gpu).collect();
        for span in &spans {
            self.span(pid, span);
        }
        if let Some(last) = spans.last() {
            // A counter holds until its next value: the last span ends.
            self.span(pid, &GpuSpan { t: last.t + last.span, span: Nanos::ZERO, ..**last });
        }
    }

    fn span(&mut self, pid: u64, span: &GpuSpan) {
        let percent = |share: Option<Share>| share.map(|share| share.get() * 100.0);
        let number = |number: Option<u32>| number.map(f64::from);
        let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0 as f64);
        let tracks = [
            (
                "activity, %",
                vec![
                    ("SMs active", percent(span.sm_active)),
                    ("SM occupancy", percent(span.sm_occupancy)),
                    ("tensor cores", percent(span.tensor_active)),
                    ("memory bandwidth", percent(span.dram_active)),
                    ("a kernel ran (NVML)", percent(span.utilization)),
                ],
            ),
            ("power, W", vec![("power", number(span.power_mw).map(|mw| mw / 1000.0))]),
            ("temperature, C", vec![("temperature", number(span.temperature))]),
            (
                "clock, MHz",
                vec![("SM", number(span.sm_clock_mhz)), ("memory", number(span.memory_clock_mhz))],
            ),
            (
                "PCI Express, bytes/s",
                vec![("from the GPU", bytes(span.pcie_from_gpu)), ("to the GPU", bytes(span.pcie_to_gpu))],
            ),
        ];
        for (name, values) in tracks {
            let known = values.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value?))));
            self.counter(pid, name, span.t, known.collect());
        }
    }

    fn process(&mut self, profile: &Profile, process: &Process) {
        let place = place(process);
        let identity = &process.identity;
        let command = if identity.command.is_empty() { &identity.exe } else { &identity.command };
        self.name(place.0, command, HOST);
        let end = process.state.ended.unwrap_or_else(|| profile.duration()).max(identity.joined);
        let slice = format!("{} uses the GPU", program_of(command));
        self.slice(place, &slice, identity.joined, end, about(process));
        for timeline in &process.timelines {
            let name = format!("GPU {} memory", timeline.gpu.0);
            let used = used_kinds(timeline.points.iter().flat_map(|point| [&point.at_max, &point.last]));
            for point in &timeline.points {
                self.counter(place.0, &name, point.t, kinds(&used, &point.at_max));
                self.counter(place.0, &name, point.t + point.span, kinds(&used, &point.last));
            }
            if process.state.ended.is_some() {
                self.counter(place.0, &name, end, kinds(&used, &[Bytes::ZERO; KIND_COUNT]));
            }
        }
        for failure in &process.state.failures {
            self.refusal(place, failure);
        }
        self.work(profile, process);
    }

    /// Launches that were timed.
    fn launches(&mut self, profile: &Profile, process: &Process, launches: &[&TimedLaunch]) {
        let (pid, _) = place(process);
        let mut short: BTreeMap<u32, String> = BTreeMap::new();
        let streams = launches::placed(launches, profile.gpu_clock);
        for (number, ((gpu, stream), placed)) in streams.into_iter().enumerate() {
            // Slots are a job's own: two programs of one process id have threads of their own.
            let tid = STREAMS + (u64::from(process.key.slot) << 10) + number as u64;
            let args = json!({"name": format!("GPU {} stream {stream}: sample of launches", gpu.0)});
            self.events.push(json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args}));
            for placed in placed {
                let kernel = placed.launch.kernel.and_then(|id| {
                    let at = process.kernels.binary_search_by_key(&id, |kernel| kernel.id).ok()?;
                    process.kernels.get(at)
                });
                let name = match (kernel, placed.launch.kernel) {
                    (Some(kernel), _) => {
                        let readable = || names::readable(&names::demangle(&kernel.name));
                        short.entry(kernel.id).or_insert_with(readable).as_str()
                    }
                    (None, Some(_)) => "(unknown kernel)",
                    (None, None) => "graph",
                };
                let (from, to) = (placed.from, placed.from + placed.shown);
                self.slice((pid, tid), name, from, to, about_launch(&placed, kernel));
            }
        }
    }

    /// Operations of a dry run's step one after another, as they were called: no trace shows on which streams.
    fn predicted(&mut self, step: &PredictedStep) {
        if step.order.is_empty() {
            return;
        }
        let place = (PREDICTED, PREDICTED);
        self.name(PREDICTED, &format!("a step, predicted on {}: no GPU ran it", step.card), HOST + 1);
        let args = json!({"name": "operations one after another, in the order of their calls"});
        self.events
            .push(json!({"ph": "M", "name": "thread_name", "pid": place.0, "tid": place.1, "args": args}));
        let at = |seconds: f64| Nanos((seconds * 1e9).round() as u64);
        let mut now = 0.0;
        for row in step.order.iter().filter_map(|at| step.work.get(*at as usize)) {
            let name = radrm_text::clean(&format!("{} {}", row.kind, row.operand)).into_owned();
            let args = json!({
                "sizes": row.sizes,
                "result": row.result,
                "flop": row.flop,
                "bytes_read": row.read,
                "bytes_written": row.written,
                "predicted": true,
            });
            match row.seconds {
                Some(seconds) => {
                    self.slice(place, &name, at(now), at(now + seconds), args);
                    now += seconds;
                }
                None => self.mark(place, "t", &format!("{name}: no predicted time"), at(now), args),
            }
        }
        if step.unknown_operations() > 0 {
            let args = json!({ "operators": step.unknown });
            self.mark(place, "p", "operations of unknown work are left out", Nanos::ZERO, args);
        }
    }

    /// The program's own phases: a track for each thread. What does not nest there, or may have ended in another thread, is
    /// on tracks of its own.
    fn ranges(&mut self, profile: &Profile, process: &Process) {
        let (pid, _) = place(process);
        let mut events: Vec<&RangeEvent> =
            profile.range_events.iter().filter(|event| event.process == process.key).collect();
        events.sort_by_key(|event| (event.thread, event.start, std::cmp::Reverse(event.length)));
        let numbers = thread_numbers(profile, process.key);
        for of_thread in events.chunk_by(|a, b| a.thread == b.thread) {
            let thread = of_thread.first().map_or(0, |event| event.thread);
            let tid = RANGES + (u64::from(process.key.slot) << 10) + u64::from(thread);
            let args = json!({"name": format!("phases of thread {}", numbers.get(&thread).copied().unwrap_or_default())});
            self.events.push(json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args}));
            let mut open: Vec<Nanos> = Vec::new();
            for event in of_thread {
                let name = radrm_text::clean(&event_name(profile, event)).into_owned();
                let (from, to) = (event.start, event.start + event.length);
                if event.is_mark {
                    self.mark((pid, tid), "t", &name, from, about_range(event));
                    continue;
                }
                while open.last().is_some_and(|end| *end <= from) {
                    open.pop();
                }
                if event.is_nested && open.last().is_none_or(|end| to <= *end) {
                    open.push(to);
                    self.slice((pid, tid), &name, from, to, about_range(event));
                } else {
                    self.apart(pid, &name, event);
                }
            }
        }
    }

    /// A range on a track of its own.
    fn apart(&mut self, pid: u64, name: &str, event: &RangeEvent) {
        let id = self.events.len();
        let mut begin =
            json!({"ph": "b", "cat": "phase", "id": id, "name": name, "pid": pid, "ts": us(event.start)});
        begin["args"] = about_range(event);
        self.events.push(begin);
        let end = us(event.start + event.length);
        self.events.push(json!({"ph": "e", "cat": "phase", "id": id, "name": name, "pid": pid, "ts": end}));
    }

    /// Adds a process's launches and copies over time.
    fn work(&mut self, profile: &Profile, process: &Process) {
        let (pid, _) = place(process);
        let spans: Vec<_> =
            profile.kernel_activity.iter().filter(|span| span.process == process.key).collect();
        let ways = used_ways(&spans);
        for (n, span) in spans.iter().enumerate() {
            self.window(pid, &ways, &WindowSummary::of(span, profile.gpu_clock));
            // A counter holds until its next value: where none follows at once the process does nothing.
            let end = span.t + span.span;
            if spans.get(n + 1).is_none_or(|next| next.t > end) {
                let nothing = KernelSpan { t: end, kernel_activity: KernelActivity::default(), ..**span };
                let WindowSummary { launched_gpu_time, sm_active_share, .. } =
                    WindowSummary::of(span, profile.gpu_clock);
                let none = |figure: Option<f64>| figure.map(|_| 0.0);
                let window = WindowSummary {
                    launched_gpu_time: none(launched_gpu_time),
                    sm_active_share: none(sm_active_share),
                    sm_occupancy_share: none(sm_active_share),
                    ..WindowSummary::of(&nothing, profile.gpu_clock)
                };
                self.window(pid, &ways, &window);
            }
        }
    }

    fn window(&mut self, pid: u64, ways: &[(String, &str)], window: &WindowSummary) {
        let percent = |share: Option<f64>| share.map(|share| share * 100.0);
        let tracks = [
            ("launches per second", vec![("launches", Some(window.launches_per_second))]),
            ("GPU time launched per time", vec![("kernels", window.launched_gpu_time)]),
            (
                "SMs by its launches, %",
                vec![
                    ("active", percent(window.sm_active_share)),
                    ("occupancy", percent(window.sm_occupancy_share)),
                ],
            ),
        ];
        for (name, values) in tracks {
            let known = values.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value?))));
            self.counter(pid, name, window.from_ns, known.collect());
        }
        for (track, way) in ways {
            let by_way = || window.copied_by_way_bytes_per_second.get(way).copied().unwrap_or(0.0);
            let rate = if way.is_empty() { window.copied_bytes_per_second } else { by_way() };
            let series = Map::from_iter([("bytes per second".to_owned(), json!(rate))]);
            self.counter(pid, track, window.from_ns, series);
        }
    }

    fn refusal(&mut self, place: (u64, u64), failure: &FailedRequest) {
        let name = if failure.out_of_memory() { "out of memory" } else { "request refused" };
        let args = json!({
            "call": failure.call,
            "gpu": failure.gpu.0,
            "size_bytes": failure.size.0,
            "free_bytes": failure.free.map(|bytes| bytes.0),
            "total_bytes": failure.total.map(|bytes| bytes.0),
            "result": failure.result,
        });
        let gpu = gpu_pid(failure.gpu);
        self.mark(place, "p", name, failure.t, args.clone());
        self.mark((gpu, gpu), "p", name, failure.t, args);
    }

    fn host(&mut self, profile: &Profile) {
        for span in &profile.host.spans {
            let busy = span.busy.0 as f64 / span.span.0.max(1) as f64;
            let series = |key: &str, value: Value| Map::from_iter([(key.to_owned(), value)]);
            self.counter(HOST, "processors busy", span.t, series("busy", json!(busy)));
            self.counter(HOST, "resident memory", span.t, series("resident", json!(span.resident.0)));
            let counts = [("processes", span.processes), ("threads", span.threads)];
            let counts = counts.map(|(key, value)| (key.to_owned(), json!(value)));
            self.counter(HOST, "processes", span.t, Map::from_iter(counts));
        }
    }

    fn event(&mut self, profile: &Profile, event: &Event) {
        let Some(process) = profile.processes.iter().rfind(|process| process.key == event.process) else {
            return;
        };
        let (name, mut args) = match event.kind {
            EventKind::Joined => ("joined", json!({})),
            EventKind::ContextCreated => ("context made", json!({})),
            EventKind::ContextDestroyed => ("context destroyed", json!({})),
            EventKind::ModuleLoaded => ("module loaded", json!({})),
            EventKind::GraphInstantiated { kernels } => ("graph made", json!({"kernels": kernels})),
            EventKind::Allocated { kind, size } => ("allocated", sized(kind, size)),
            EventKind::Freed { kind, size } => ("freed", sized(kind, size)),
            EventKind::Refused { kind, size } => ("refused", sized(kind, size)),
            EventKind::Other { .. } => return,
        };
        if let Some(gpu) = event.gpu {
            args["gpu"] = json!(gpu.0);
        }
        self.mark(place(process), "t", name, event.t, args);
    }
}

fn sized(kind: u8, size: Bytes) -> Value {
    json!({"kind": Kind::from_raw(kind).map_or("unknown", Kind::label), "size_bytes": size.0})
}

/// Tracks of the ways in which a process ever copied. Where an older profile has no ways there is one for all.
fn used_ways(spans: &[&KernelSpan]) -> Vec<(String, &'static str)> {
    let any =
        |of: &dyn Fn(&KernelActivity) -> Bytes| spans.iter().any(|span| !of(&span.kernel_activity).is_zero());
    let track = |way: &str| match way {
        "memset" => "memsets, bytes/s".to_owned(),
        way => format!("copies {}, bytes/s", way.replace('_', " ")),
    };
    let ways = COPY_WAYS.into_iter().enumerate().filter(|(n, _)| any(&|work| work.ways[*n]));
    let ways: Vec<_> = ways.map(|(_, way)| (track(way), way)).collect();
    if ways.is_empty() && any(&|work| work.copied) {
        return vec![("copies and memsets, bytes/s".to_owned(), "")];
    }
    ways
}

/// The kinds that are ever held: others would be empty tracks.
fn used_kinds<'a>(all: impl Iterator<Item = &'a [Bytes; KIND_COUNT]>) -> Vec<Kind> {
    let mut used = [false; KIND_COUNT];
    for kinds in all {
        for (used, bytes) in used.iter_mut().zip(kinds) {
            *used |= !bytes.is_zero();
        }
    }
    Kind::ALL.into_iter().filter(|kind| used[kind.index()]).collect()
}

fn kinds(used: &[Kind], held: &[Bytes; KIND_COUNT]) -> Map<String, Value> {
    used.iter().map(|kind| (kind.label().to_owned(), json!(held[kind.index()].0))).collect()
}

fn about_range(event: &RangeEvent) -> Value {
    let mut args = json!({});
    if let Some(step) = event.step {
        args["step"] = json!(step);
    }
    if let Some(gpu) = event.gpu {
        args["gpu"] = json!(gpu.0);
        args["memory_at_begin_bytes"] = json!(event.entry.0);
        args["memory_at_end_bytes"] = json!(event.exit.0);
        args["memory_peak_bytes"] = json!(event.peak.map(|peak| peak.0));
    }
    args
}

fn about_launch(placed: &Placed<'_>, kernel: Option<&Kernel>) -> Value {
    let launch = placed.launch;
    let mut args = json!({
        "sample": true,
        "duration_ns": launch.duration.0,
        "launched_us": us(launch.launched),
        "placed": match placed.within {
            Some(within) => format!("began within {within} of where it is shown"),
            None => "by the modelled time of the GPU, which is not the host's".to_owned(),
        },
        "placed_within_ns": placed.within.map(|within| within.0),
    });
    if let Some(kernel) = kernel {
        args["kernel"] = json!(names::demangle(&kernel.name));
        args["blocks"] = json!(launch.blocks);
        args["threads_per_block"] = json!(launch.threads);
        args["registers_per_thread"] = json!(kernel.registers);
        args["static_shared_bytes"] = json!(kernel.static_shared.0);
        args["dynamic_shared_bytes"] = json!(launch.dynamic_shared.0);
    }
    args
}

/// Activity of a process that is known but not placed in time: its kernels and copies.
fn about(process: &Process) -> Value {
    let mut launched: Vec<_> = process.kernels.iter().filter(|kernel| kernel.all_launches() > 0).collect();
    let time = |id| process.timings.kernel(id).map_or(0, |time| time.total.0);
    launched.sort_by_key(|kernel| std::cmp::Reverse((time(kernel.id), kernel.all_launches())));
    let kernel = |kernel: &&Kernel| {
        let mut args = json!({
            "name": names::demangle(&kernel.name),
            "launches": kernel.all_launches(),
        });
        if let Some(time) = process.timings.kernel(kernel.id) {
            args["gpu_time_ns"] = json!(time.total.0);
            args["half_width_ns"] = json!(time.half_width.0);
            args["timed_launches"] = json!(time.samples);
        }
        args
    };
    let copies = process.timings.copies.iter();
    let copies: Vec<Value> =
        copies.map(|c| json!({"way": c.way, "count": c.count, "bytes": c.bytes.0})).collect();
    let known = |count: u64| (!process.has_unrecorded_kernels()).then_some(count);
    json!({
        "pid": process.identity.pid,
        "launches": known(process.state.launches),
        "graph_launches": known(process.state.graph_launches),
        "kernels": launched.iter().take(KERNELS).map(kernel).collect::<Vec<_>>(),
        "copies": copies,
    })
}

fn program_of(command: &str) -> &str {
    let program = command.split(' ').next().unwrap_or(command);
    program.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(program)
}
