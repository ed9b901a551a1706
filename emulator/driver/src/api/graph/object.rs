//! Entry points of user objects: things of the program that live as long as graphs refer to them.

use std::ffi::{c_uint, c_void};

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::graph::state::{Object, Objects};
use crate::engine::stream::op::HostCall;
use crate::util::ffi::{Answer, Out};

fn with_known(
    driver: &'static Driver,
    handle: CUuserObject,
    count: c_uint,
    work: impl FnOnce(&mut Objects),
) -> Answer {
    let mut state = driver.sched();
    let objects = &mut state.graphs.objects;
    if count == 0 || count > i32::MAX as c_uint || !objects.objects.contains_key(&handle.addr()) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    work(objects);
    state.bury_objects(driver);
    Ok(())
}

/// The destructor as C hands it over.
type Destroy = Option<unsafe extern "C" fn(*mut c_void)>;

entry_points! {
    /// Makes a user object.
    fn cuUserObjectCreate(
        object: Out<CUuserObject>, data: *mut c_void, destroy: Destroy, references: c_uint, flags: c_uint,
    ) |driver| {
        object.required()?;
        const NO_DESTRUCTOR_SYNC: c_uint = 1;
        let function = destroy.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if flags != NO_DESTRUCTOR_SYNC || references == 0 || references > i32::MAX as c_uint {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let handle = driver.handles.next();
        let made = Object { destroy: HostCall::Function { function, data }, references: references.into() };
        driver.sched().graphs.objects.objects.insert(handle, made);
        object.set(CUuserObject(handle as usize as *mut c_void))
    }

    /// Takes references of the program's own.
    fn cuUserObjectRetain(object: CUuserObject, count: c_uint) |driver| {
        with_known(driver, object, count, |objects| objects.retain(object.addr(), count))
    }

    /// Gives references of the program's own back.
    fn cuUserObjectRelease(object: CUuserObject, count: c_uint) |driver| {
        with_known(driver, object, count, |objects| {
            objects.release(object.addr(), count);
        })
    }

    /// Gives a graph references: new ones, or those of the program.
    fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint) |driver| {
        const MOVE: c_uint = 1;
        let mut state = driver.sched();
        state.graphs.graph(graph.addr())?;
        let objects = &mut state.graphs.objects;
        if flags > MOVE || count == 0 || !objects.objects.contains_key(&object.addr()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if flags != MOVE {
            objects.retain(object.addr(), count);
        }
        if let Some(graph) = state.graphs.graphs.get_mut(&graph.addr()) {
            graph.objects.push((object.addr(), count));
        }
        Ok(())
    }

    /// Takes references from a graph.
    fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint) |driver| {
        let mut state = driver.sched();
        let held = &mut state.graphs.graphs.get_mut(&graph.addr()).ok_or(CUDA_ERROR_INVALID_VALUE)?.objects;
        let sum: u64 = held.iter().filter(|(o, _)| *o == object.addr()).map(|(_, n)| u64::from(*n)).sum();
        if count == 0 || sum < u64::from(count) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut left = count;
        for (_, n) in held.iter_mut().filter(|(o, _)| *o == object.addr()) {
            let taken = left.min(*n);
            *n -= taken;
            left -= taken;
        }
        held.retain(|(_, n)| *n > 0);
        state.graphs.objects.release(object.addr(), count);
        state.bury_objects(driver);
        Ok(())
    }
}
