//! One thread for each element of arrays.

use anyhow::{Result, ensure};
use cudarc::driver::{CudaSlice, PushKernelArg as _};

use super::{repeat::repeat, shape::Shape};
use crate::{
    code::Gpu,
    known::{Checked, Known, is_hollow},
    size::{MIB, Size},
};

/// Initial value of the elements of `square`.
const UNTOUCHED: f32 = -1.0;

/// The square of -1 is 1, and stays it however often it is squared again; what is not touched keeps its -1.
pub fn square(gpu: &Gpu, size: Size) -> Result<Known> {
    let shape = Shape::of(size, size.mib * MIB)?;
    let n = shape.elements();
    let mut known = Known { program: "square", ..Known::default() };
    let mut x = gpu.stream.clone_htod(&vec![UNTOUCHED; n as usize])?;
    known.holds(x.num_bytes());
    known.bytes_to_gpu = x.num_bytes() as u64;
    let kernel = gpu.kernel("square")?;
    let rounds = repeat(gpu, size, &mut known, || {
        let mut launch = gpu.stream.launch_builder(&kernel);
        launch.arg(&mut x).arg(&n);
        // SAFETY: the arguments are those of the kernel, and it stays within `n`.
        unsafe { launch.launch(shape.config())? };
        Ok(())
    })?;
    known.launched("square", shape, rounds);
    known.flops = rounds * u64::from(n);
    known.bytes = rounds * u64::from(n) * 8;
    check(gpu, &mut known, &x, |_| 1.0)?;
    Ok(known)
}

pub fn triad(gpu: &Gpu, size: Size) -> Result<Known> {
    let shape = Shape::of(size, size.mib * MIB / 3)?;
    let n = shape.elements();
    let mut known = Known { program: "triad", ..Known::default() };
    let of = |scale: f32| -> Vec<f32> { (0..n).map(|i| scale * (i % 1000 + 1) as f32).collect() };
    let b = gpu.stream.clone_htod(&of(1.0))?;
    let c = gpu.stream.clone_htod(&of(0.5))?;
    let mut a = gpu.stream.alloc_zeros::<f32>(n as usize)?;
    for array in [&a, &b, &c] {
        known.holds(array.num_bytes());
    }
    known.bytes_to_gpu = 2 * a.num_bytes() as u64;
    let kernel = gpu.kernel("triad")?;
    let rounds = repeat(gpu, size, &mut known, || {
        let mut launch = gpu.stream.launch_builder(&kernel);
        launch.arg(&mut a).arg(&b).arg(&c).arg(&n);
        // SAFETY: as in `square`.
        unsafe { launch.launch(shape.config())? };
        Ok(())
    })?;
    known.launched("triad", shape, rounds);
    known.flops = rounds * u64::from(n) * 2;
    known.bytes = rounds * u64::from(n) * 12;
    check(gpu, &mut known, &a, |i| 3.5 * (i % 1000 + 1) as f32)?;
    Ok(known)
}

/// So many operations for each element that memory does not matter.
pub fn spin(gpu: &Gpu, size: Size) -> Result<Known> {
    let shape = Shape::of(size, size.mib * MIB)?;
    let n = shape.elements();
    let mut known = Known { program: "spin", ..Known::default() };
    let mut x = gpu.stream.alloc_zeros::<f32>(n as usize)?;
    known.holds(x.num_bytes());
    let kernel = gpu.kernel("spin")?;
    let rounds = repeat(gpu, size, &mut known, || {
        let mut launch = gpu.stream.launch_builder(&kernel);
        launch.arg(&mut x).arg(&n).arg(&size.spins);
        // SAFETY: as in `square`.
        unsafe { launch.launch(shape.config())? };
        Ok(())
    })?;
    known.launched("spin", shape, rounds);
    known.flops = rounds * u64::from(n) * 2 * u64::from(size.spins);
    known.bytes = rounds * u64::from(n) * 8;
    check(gpu, &mut known, &x, |_| 2.0)?;
    Ok(known)
}

/// Compares all elements with what they should be, which is never 0.
fn check(
    gpu: &Gpu,
    known: &mut Known,
    values: &CudaSlice<f32>,
    expected: impl Fn(usize) -> f32,
) -> Result<()> {
    let values = gpu.stream.clone_dtoh(values)?;
    gpu.stream.synchronize()?;
    known.bytes_from_gpu += 4 * values.len() as u64;
    known.checked = Checked::NotExecuted;
    // An emulated GPU gives back zeros, or what was copied there.
    if is_hollow(&values) || values.iter().all(|v| *v == UNTOUCHED) {
        return Ok(());
    }
    let wrong = values.iter().enumerate().filter(|(i, v)| **v != expected(*i)).count();
    ensure!(wrong == 0, "{wrong} of {} elements are wrong", values.len());
    known.checked = Checked::Right;
    Ok(())
}
