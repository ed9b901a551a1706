//! A training in small.

use anyhow::{Result, ensure};
use cudarc::driver::PushKernelArg as _;

use super::{repeat::repeat, shape::Shape};
use crate::{
    code::Gpu,
    known::{Checked, Known, is_hollow},
    size::{MIB, Size},
};

const RATE: f32 = 0.1;
/// Value that the weights should reach.
const TARGET: f32 = 2.0;

/// Learns `w` in `t = w x`, each element for itself, from batches that come from the host: parameters and
/// momentum stay, activations and gradients are allocated anew in each step, as frameworks do it.
pub fn train(gpu: &Gpu, size: Size) -> Result<Known> {
    let shape = Shape::of(size, size.mib * MIB / 6)?;
    let n = shape.elements();
    let count = n as usize;
    let array = 4 * u64::from(n);
    let mut known = Known { program: "train", ..Known::default() };
    let [forward, backward, update] = ["forward", "backward", "update"].map(|name| gpu.kernel(name));
    let (forward, backward, update) = (forward?, backward?, update?);
    let mut w = gpu.stream.alloc_zeros::<f32>(count)?;
    let mut m = gpu.stream.alloc_zeros::<f32>(count)?;
    let batch = vec![1.0_f32; count];
    let labels = vec![TARGET; count];
    let rounds = repeat(gpu, size, &mut known, || {
        let x = gpu.stream.clone_htod(&batch)?;
        let t = gpu.stream.clone_htod(&labels)?;
        let mut y = gpu.stream.alloc_zeros::<f32>(count)?;
        let mut g = gpu.stream.alloc_zeros::<f32>(count)?;
        let mut launch = gpu.stream.launch_builder(&forward);
        launch.arg(&mut y).arg(&w).arg(&x).arg(&n);
        // SAFETY: the arguments are those of the kernel, and it stays within `n`; so below.
        unsafe { launch.launch(shape.config())? };
        let mut launch = gpu.stream.launch_builder(&backward);
        launch.arg(&mut g).arg(&y).arg(&t).arg(&x).arg(&n);
        // SAFETY: as above.
        unsafe { launch.launch(shape.config())? };
        let mut launch = gpu.stream.launch_builder(&update);
        launch.arg(&mut w).arg(&mut m).arg(&g).arg(&n).arg(&RATE);
        // SAFETY: as above.
        unsafe { launch.launch(shape.config())? };
        Ok(())
    })?;
    for (kernel, flops, arrays) in [("forward", 1, 3), ("backward", 2, 4), ("update", 4, 5)] {
        known.launched(kernel, shape, rounds);
        known.flops += rounds * flops * u64::from(n);
        known.bytes += rounds * arrays * array;
    }
    known.bytes_to_gpu = rounds * 2 * array;
    known.allocations = 2 + 4 * rounds;
    known.peak_bytes = 6 * array;
    let values = gpu.stream.clone_dtoh(&w)?;
    gpu.stream.synchronize()?;
    known.bytes_from_gpu = array;
    known.checked = if is_hollow(&values) { Checked::NotExecuted } else { Checked::Right };
    let expected = on_the_host(rounds);
    let wrong = values.iter().filter(|v| (**v - expected).abs() > 1e-4 * TARGET).count();
    ensure!(known.checked == Checked::NotExecuted || wrong == 0, "{wrong} of {n} weights are not {expected}");
    Ok(known)
}

/// A weight after so many steps.
fn on_the_host(steps: u64) -> f32 {
    let (mut w, mut m) = (0.0_f32, 0.0_f32);
    for _ in 0..steps.min(10_000) {
        let y = w;
        m = m * 0.5 + (y - TARGET);
        w -= RATE * m;
    }
    w
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_training_converges() {
        assert_eq!(on_the_host(1), 0.2);
        assert!((on_the_host(100) - TARGET).abs() < 1e-4);
        assert_eq!(on_the_host(10_000), on_the_host(u64::MAX));
    }
}
