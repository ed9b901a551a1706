//! Entry points for tools: profilers and core dumps. There is no profiler, and no core is ever dumped; what programs set
//! is remembered.

use core::ffi::{c_char, c_uint, c_void};

use radrm_cuda_abi::*;

use crate::engine::context::CoreDumps as Settings;
use crate::util::ffi::{Answer, In, Out, set_text};
use crate::util::sync::lock;

/// `CU_COREDUMP_LIGHTWEIGHT` as a flag: no ELF images, no global, shared, local, constant and tensor memory.
const LIGHTWEIGHT: u32 = 0b1_0010_1111;
/// Longest text, NUL included.
const TEXT: usize = 1024;

/// Shape of an attribute's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Bool,
    Text,
    Flags,
}

/// Shape and default of an attribute.
fn attribute(number: c_uint) -> Answer<(Shape, Vec<u8>)> {
    let text = |prefix: &str| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        (Shape::Text, format!("{prefix}.cuda.{}.{}", host.trim(), std::process::id()).into_bytes())
    };
    match number {
        // On exception, lightweight, user trigger; and: by the host too.
        1 | 3 | 4 => Ok((Shape::Bool, vec![0])),
        2 => Ok((Shape::Bool, vec![1])),
        5 => Ok(text("core")),
        6 => Ok(text("corepipe")),
        7 => Ok((Shape::Flags, vec![0; 4])),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn get(number: c_uint, sources: &[&Settings], value: Out<c_void>, size: Out<usize>) -> Answer {
    let (shape, default) = attribute(number)?;
    let bytes = sources.iter().find_map(|set| set.get(&number)).unwrap_or(&default);
    let room = match shape {
        Shape::Bool => 1,
        Shape::Text => TEXT,
        Shape::Flags => 4,
    };
    if value.is_null() {
        return size.set(room);
    }
    let given = size.get()?;
    if shape != Shape::Text && given < room {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if shape == Shape::Text {
        return set_text(value.cast::<c_char>(), given, &String::from_utf8_lossy(bytes));
    }
    bytes.iter().enumerate().try_for_each(|(at, byte)| value.cast::<u8>().set_at(at, *byte))
}

fn set(number: c_uint, settings: &mut Settings, value: In<u8>, size: Out<usize>) -> Answer {
    let (shape, _) = attribute(number)?;
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
    if number == 3 {
        let flags = if bytes == [1] { LIGHTWEIGHT } else { 0 };
        settings.insert(7, flags.to_ne_bytes().to_vec());
    }
    settings.insert(number, bytes);
    Ok(())
}

entry_points! {
    /// Set a profiler up that drivers have no more.
    fn cuProfilerInitialize(_config: In<c_char>, _output: In<c_char>, _mode: c_uint) |_driver| {
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }

    /// Begins profiling in the current context.
    fn cuProfilerStart() |driver| {
        driver.current().map(drop)
    }

    /// Ends profiling in the current context.
    fn cuProfilerStop() |driver| {
        driver.current().map(drop)
    }

    /// A core dump attribute of the current context: its own, else that of the process, else the default.
    fn cuCoredumpGetAttribute(number: c_uint, value: Out<c_void>, size: Out<usize>) |driver| {
        let context = driver.current()?;
        get(number, &[&*lock(&context.core_dumps), &*lock(&driver.core_dumps)], value, size)
    }

    /// A core dump attribute of the process, or the default.
    fn cuCoredumpGetAttributeGlobal(number: c_uint, value: Out<c_void>, size: Out<usize>) |driver| {
        get(number, &[&*lock(&driver.core_dumps)], value, size)
    }

    /// Sets a core dump attribute of the current context. The pipe of user triggers is the process's.
    fn cuCoredumpSetAttribute(number: c_uint, value: In<u8>, size: Out<usize>) |driver| {
        let context = driver.current()?;
        if matches!(number, 4 | 6) {
            return Err(CUDA_ERROR_NOT_PERMITTED);
        }
        set(number, &mut lock(&context.core_dumps), value, size)
    }

    /// Sets a core dump attribute of the process.
    fn cuCoredumpSetAttributeGlobal(number: c_uint, value: In<u8>, size: Out<usize>) |driver| {
        set(number, &mut lock(&driver.core_dumps), value, size)
    }
}
