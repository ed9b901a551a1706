//! Entry points of events.

use std::ffi::{c_uint, c_void};

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::graph::node::NodeKind;
use crate::engine::memory::free;
use crate::engine::stream::event::point;
use crate::engine::stream::op::{Event, Recording, not_in_callback};
use crate::engine::stream::queue::wait_for_mark;
use crate::util::ffi::{Answer, Out};

const BLOCKING_SYNC: c_uint = 1;
const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;
/// `CU_EVENT_RECORD_EXTERNAL`, `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: c_uint = 1;

fn record(driver: &'static Driver, event: CUevent, stream: CUstream, flags: c_uint) -> Answer {
    not_in_callback()?;
    let mut state = driver.sched();
    let context = state.event(event)?.context;
    let key = state.find(driver, stream)?;
    if state.stream(key)?.context != context {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    match (state.admit(key)?, flags) {
        (None, 0) => state.record_event(driver, event, key),
        (Some(capture), 0) => {
            let nodes = state.stream(key)?.frontier.clone();
            state.event(event)?.recording = Recording::Captured { capture, nodes };
            Ok(())
        }
        (Some(capture), EXTERNAL) => {
            state.record(capture, key, NodeKind::RecordEvent { event: event.addr() }).map(drop)
        }
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn wait(driver: &'static Driver, stream: CUstream, event: CUevent, flags: c_uint) -> Answer {
    not_in_callback()?;
    if flags > EXTERNAL {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut state = driver.sched();
    let recording = state.event(event)?.recording.clone();
    let key = state.find(driver, stream)?;
    if flags == EXTERNAL {
        let capture = state.admit(key)?.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        return state.record(capture, key, NodeKind::WaitEvent { event: event.addr() }).map(drop);
    }
    if matches!(recording, Recording::Captured { .. }) {
        return state.join_capture(key, &recording);
    }
    match state.admit(key)? {
        None => state.wait_event(driver, key, event),
        Some(capture) => {
            state.invalidate(capture);
            Err(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
        }
    }
}

fn elapsed(driver: &'static Driver, out: Out<f32>, start: CUevent, end: CUevent) -> Answer {
    out.required()?;
    let mut state = driver.sched();
    // What is wrong with either of them does not depend on the time of the question.
    let mut marks = Vec::with_capacity(2);
    for event in [start, end] {
        if state.event(event)?.flags & DISABLE_TIMING != 0 {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        marks.push(point(&mut state, event)?.ok_or(CUDA_ERROR_INVALID_HANDLE)?);
    }
    let mut times = [0.0; 2];
    for (mark, time) in marks.iter().zip(&mut times) {
        let moment = mark.reached().filter(|moment| state.clock.answer(*moment));
        *time = state.clock.on_host(moment.ok_or(CUDA_ERROR_NOT_READY)?);
    }
    out.set(((times[1] - times[0]) / 1e6) as f32)
}

entry_points! {
    /// Makes an event in the current context.
    fn cuEventCreate(event: Out<CUevent>, flags: c_uint) |driver| {
        event.required()?;
        let known = BLOCKING_SYNC | DISABLE_TIMING | INTERPROCESS;
        if flags & !known != 0 || flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let context = driver.current()?;
        let handle = driver.handles.next();
        let (of, device) = (context.handle.addr(), context.device);
        driver.sched().events.insert(handle, Event { context: of, device, flags, recording: Recording::Never });
        event.set(CUevent(handle as usize as *mut c_void))
    }

    /// Forgets an event; what waits for it goes on waiting.
    fn cuEventDestroy_v2(event: CUevent) |driver| {
        driver.sched().events.remove(&event.addr()).map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Lets an event stand for all work that the stream has now.
    fn cuEventRecord(event: CUevent, stream: CUstream) |driver| {
        record(driver, event, stream, 0)
    }

    /// As `cuEventRecord`; in a capture the external flag makes it a node.
    fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) |driver| {
        record(driver, event, stream, flags)
    }

    /// Makes all later work of a stream wait for an event.
    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) |driver| {
        wait(driver, stream, event, flags)
    }

    /// Reports whether the work that an event stands for is done.
    fn cuEventQuery(event: CUevent) |driver| {
        let mut state = driver.sched();
        let mark = point(&mut state, event)?;
        state.unsafe_call()?;
        let context = state.event(event)?.context;
        state.context(driver, context)?.check()?;
        let Some(mark) = mark else { return Ok(()) };
        mark.reached().filter(|moment| state.clock.answer(*moment)).map(drop).ok_or(CUDA_ERROR_NOT_READY)
    }

    /// Waits for the work that an event stands for.
    fn cuEventSynchronize(event: CUevent) |driver| {
        not_in_callback()?;
        let mut state = driver.sched();
        let mark = point(&mut state, event)?;
        state.unsafe_call()?;
        let (device, context) = state.event(event).map(|e| (e.device, e.context))?;
        let context = state.context(driver, context)?;
        match mark {
            Some(mark) => wait_for_mark(driver, state, &mark),
            None => drop(state),
        }
        free::synchronized(driver, device);
        context.check()
    }

    /// Time between two events in milliseconds, of virtual time.
    fn cuEventElapsedTime(milliseconds: Out<f32>, start: CUevent, end: CUevent) |driver| {
        elapsed(driver, milliseconds, start, end)
    }

    /// A handle that another process can open. It carries no point in time: see `cuIpcOpenEventHandle`.
    fn cuIpcGetEventHandle(out: Out<CUipcEventHandle>, event: CUevent) |driver| {
        out.required()?;
        if driver.sched().event(event)?.flags & INTERPROCESS == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        driver.process.mark(radrm_emulator_machine::Mark::Ipc);
        let mut reserved = [0; 64];
        reserved[..8].copy_from_slice(IPC_MAGIC);
        reserved[8..16].copy_from_slice(&event.addr().to_le_bytes());
        reserved[16..20].copy_from_slice(&std::process::id().to_le_bytes());
        out.set(CUipcEventHandle { reserved })
    }

    /// An event that stands for one of another process. Virtual time is a process's own, so it counts
    /// as done until this process records it.
    fn cuIpcOpenEventHandle(event: Out<CUevent>, handle: CUipcEventHandle) |driver| {
        event.required()?;
        if !handle.reserved.starts_with(IPC_MAGIC) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if handle.reserved[16..20] == std::process::id().to_le_bytes() {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        let context = driver.current()?;
        driver.process.mark(radrm_emulator_machine::Mark::Ipc);
        let opened = driver.handles.next();
        let flags = INTERPROCESS | DISABLE_TIMING;
        let made = Event { context: context.handle.addr(), device: context.device, flags, recording: Recording::Never };
        driver.sched().events.insert(opened, made);
        event.set(CUevent(opened as usize as *mut c_void))
    }
}

const IPC_MAGIC: &[u8; 8] = b"RADRMEVT";
