//! Launches for their own sake: one by one, and as graphs.

use anyhow::{Context as _, Result, ensure};
use cudarc::driver::{
    PushKernelArg as _,
    sys::{CUgraphInstantiate_flags, CUstreamCaptureMode},
};

use super::{repeat::repeat, shape::Shape};
use crate::{
    code::Gpu,
    known::{Checked, Known, is_hollow},
    size::Size,
};

pub fn storm(gpu: &Gpu, size: Size) -> Result<Known> {
    let mut known = Known { program: "storm", ..Known::default() };
    let shape = Shape { blocks: size.blocks.unwrap_or(1), threads: 32 };
    let kernel = gpu.kernel("nothing")?;
    let rounds = repeat(gpu, size, &mut known, || {
        // SAFETY: the kernel has no arguments.
        unsafe { gpu.stream.launch_builder(&kernel).launch(shape.config())? };
        Ok(())
    })?;
    known.launched("nothing", shape, rounds);
    Ok(known)
}

/// Every launch of the graph adds the number of its nodes to every element.
pub fn replay(gpu: &Gpu, size: Size) -> Result<Known> {
    const ELEMENTS: usize = 32 * 1024;
    let mut known = Known { program: "replay", ..Known::default() };
    let nodes = size.nodes;
    ensure!(nodes > 0, "a graph has at least 1 node");
    let shape = Shape::of(size, ELEMENTS * 4)?;
    let n = shape.elements();
    let mut x = gpu.stream.alloc_zeros::<f32>(n as usize)?;
    known.holds(x.num_bytes());
    let kernel = gpu.kernel("increment")?;
    gpu.stream.synchronize()?;
    // cudarc orders streams by events of its own, which do not belong into the graph; there is one stream.
    // SAFETY: nothing is used on two streams here or later.
    unsafe { gpu.context.disable_event_tracking() };
    gpu.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    for _ in 0..nodes {
        let mut launch = gpu.stream.launch_builder(&kernel);
        launch.arg(&mut x).arg(&n);
        // SAFETY: the arguments are those of the kernel, and it stays within `n`.
        unsafe { launch.launch(shape.config())? };
    }
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = gpu.stream.end_capture(flags)?.context("the capture gave no graph")?;
    let rounds = repeat(gpu, size, &mut known, || Ok(graph.launch()?))?;
    let launches = rounds * nodes as u64;
    known.graphs = rounds;
    known.launched_in_graphs("increment", shape, launches);
    known.flops = launches * u64::from(n);
    known.bytes = launches * u64::from(n) * 8;
    let values = gpu.stream.clone_dtoh(&x)?;
    gpu.stream.synchronize()?;
    known.bytes_from_gpu = 4 * u64::from(n);
    known.checked = if is_hollow(&values) { Checked::NotExecuted } else { Checked::Right };
    // Numbers up to 2^24 are exact.
    let expected = launches.min(1 << 24) as f32;
    let wrong = values.iter().filter(|v| **v != expected).count();
    ensure!(
        known.checked == Checked::NotExecuted || wrong == 0,
        "{wrong} of {n} elements are not {expected}"
    );
    Ok(known)
}
