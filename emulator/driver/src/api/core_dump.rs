//! Entry points of core dumps. No core is ever dumped: what programs set is remembered, and what they register is never
//! called.

use core::ffi::{c_char, c_uint, c_void};

use radrm_cuda_abi::*;

use crate::engine::core_dump::{Moment, PIPE, Settings, Shape, TEXT, USER_TRIGGER, default_of};
use crate::engine::driver::Driver;
use crate::util::ffi::{Answer, In, Out, set_text};
use crate::util::sync::lock;

/// Bytes that an attribute's value has, or may have.
fn room(shape: Shape) -> usize {
    match shape {
        Shape::Bool => 1,
        Shape::Text => TEXT,
        Shape::Flags => 4,
    }
}

fn get(number: c_uint, sources: &[&Settings], value: Out<c_void>, size: Out<usize>) -> Answer {
    let (shape, default) = default_of(number)?;
    let bytes = sources.iter().find_map(|set| set.get(&number)).unwrap_or(&default);
    if value.is_null() {
        return size.set(room(shape));
    }
    let given = size.get()?;
    if shape == Shape::Text {
        return set_text(value.cast::<c_char>(), given, &String::from_utf8_lossy(bytes));
    }
    if given < room(shape) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    bytes.iter().enumerate().try_for_each(|(at, byte)| value.cast::<u8>().set_at(at, *byte))
}

fn set(number: c_uint, settings: &mut Settings, value: In<u8>, size: Out<usize>) -> Answer {
    let (shape, _) = default_of(number)?;
    if value.is_null() {
        return size.set(room(shape));
    }
    let given = size.get()?;
    let bytes = match shape {
        Shape::Bool if given == 1 => vec![u8::from(value.get()? != 0)],
        Shape::Flags if given == 4 => value.list(4)?,
        Shape::Text if (1..TEXT).contains(&given) => {
            let bytes = value.list(given)?;
            bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    settings.put(number, bytes);
    Ok(())
}

fn register(driver: &Driver, moment: Moment, callback: *const c_void, out: Out<u64>) -> Answer {
    if callback.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let handle = driver.handles.next();
    lock(&driver.core_dumps).callbacks.insert(handle, moment);
    out.set_if_wanted(handle);
    Ok(())
}

fn deregister(driver: &Driver, moment: Moment, handle: u64) -> Answer {
    let callbacks = &mut lock(&driver.core_dumps).callbacks;
    if callbacks.get(&handle) != Some(&moment) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    callbacks.remove(&handle);
    Ok(())
}

entry_points! {
    /// A core dump attribute of the current context: the environment's, its own, that of the process, or the default.
    fn cuCoredumpGetAttribute(number: c_uint, value: Out<c_void>, size: Out<usize>) |driver| {
        let context = driver.current()?;
        let by_flags = Settings::of_flags(context.flags());
        let process = lock(&driver.core_dumps);
        let own = lock(&context.core_dumps);
        get(number, &[&process.environment, &own, &by_flags, &process.settings], value, size)
    }

    /// A core dump attribute of the process: the environment's, what was set, or the default.
    fn cuCoredumpGetAttributeGlobal(number: c_uint, value: Out<c_void>, size: Out<usize>) |driver| {
        let process = lock(&driver.core_dumps);
        get(number, &[&process.environment, &process.settings], value, size)
    }

    /// Sets a core dump attribute of the current context. The pipe of user triggers is the process's.
    fn cuCoredumpSetAttribute(number: c_uint, value: In<u8>, size: Out<usize>) |driver| {
        let context = driver.current()?;
        if matches!(number, USER_TRIGGER | PIPE) {
            return Err(CUDA_ERROR_NOT_PERMITTED);
        }
        set(number, &mut lock(&context.core_dumps), value, size)
    }

    /// Sets a core dump attribute of the process. The pipe stays once user triggers are on.
    fn cuCoredumpSetAttributeGlobal(number: c_uint, value: In<u8>, size: Out<usize>) |driver| {
        let mut process = lock(&driver.core_dumps);
        if number == PIPE && !value.is_null() && process.settings.is_on(USER_TRIGGER) {
            return Err(CUDA_ERROR_NOT_PERMITTED);
        }
        set(number, &mut process.settings, value, size)
    }

    /// Registers a function for the beginning of core dumps.
    fn cuCoredumpRegisterStartCallback(callback: *const c_void, _data: *mut c_void, out: Out<u64>) |driver| {
        register(driver, Moment::Start, callback, out)
    }

    /// Registers a function for the end of core dumps.
    fn cuCoredumpRegisterCompleteCallback(callback: *const c_void, _data: *mut c_void, out: Out<u64>) |driver| {
        register(driver, Moment::Complete, callback, out)
    }

    /// Forgets a function for the beginning.
    fn cuCoredumpDeregisterStartCallback(callback: u64) |driver| {
        deregister(driver, Moment::Start, callback)
    }

    /// Forgets a function for the end.
    fn cuCoredumpDeregisterCompleteCallback(callback: u64) |driver| {
        deregister(driver, Moment::Complete, callback)
    }
}
