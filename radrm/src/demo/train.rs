//! The program of the demonstration. It uses two GPUs as a training does: weights, a pool for activations in the
//! stream's order, pinned buffers for the input, a loop of launches, one request that is too large, and a second
//! process that evaluates on the other GPU. It knows nothing of RADRM.

use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use super::driver::{DevicePointer, Driver, DriverError};
use super::{DemoError, Part};

const MIB: usize = 1 << 20;
const LAYERS: usize = 12;
const STEPS: usize = 40;

const PTX: &std::ffi::CStr = c".version 7.0
.target sm_70
.address_size 64
.visible .entry forward_matmul(.param .u64 x, .param .u64 w)
{
    .shared .align 4 .b8 tile[16384];
    ret;
}
.visible .entry backward_matmul(.param .u64 x, .param .u64 w)
{
    ret;
}
.visible .entry adam_step(.param .u64 w, .param .u64 g)
{
    ret;
}
";

/// Is one of the two processes.
///
/// # Errors
/// A call of the driver failed, or the other process did.
pub(super) fn run(part: Part) -> Result<(), DemoError> {
    let driver = Driver::open()?;
    match part {
        Part::Evaluate => evaluate(&driver)?,
        Part::Train => {
            let mut evaluation = other_process().map_err(DemoError::Evaluation)?;
            train(&driver)?;
            let status = evaluation.wait().map_err(DemoError::Evaluation)?;
            if !status.success() {
                return Err(DemoError::Ended { program: "demo: the evaluation".into(), status });
            }
        }
    }
    Ok(())
}

fn other_process() -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).args(["demo", "--part", "evaluate"]).spawn()
}

fn train(driver: &Driver) -> Result<(), DriverError> {
    driver.use_device(0)?;
    let stream = driver.stream()?;
    let module = driver.module(PTX)?;
    let forward = driver.kernel(module, c"forward_matmul")?;
    let backward = driver.kernel(module, c"backward_matmul")?;
    let adam = driver.kernel(module, c"adam_step")?;

    let mut weights: DevicePointer = 0;
    for _ in 0..LAYERS {
        weights = driver.allocate(96 * MIB)?;
        let (_gradients, _moments) = (driver.allocate(96 * MIB)?, driver.allocate(192 * MIB)?);
    }
    let batch = driver.allocate(64 * MIB)?;
    let input = driver.allocate_host(64 * MIB)?;

    // What does not fit: a framework would now try a smaller batch.
    match driver.allocate(200 * 1024 * MIB) {
        Ok(large) => driver.free(large)?,
        Err(_) => println!("train: a batch of 200 GiB does not fit, taking a smaller one"),
    }

    for step in 1..=STEPS {
        stream.copy(batch, input, 64 * MIB)?;
        let mut activations = Vec::new();
        for layer in 0..LAYERS {
            activations.push(stream.allocate((128 + 16 * layer) * MIB)?);
            stream.launch(forward, [1024, 1], 256, [batch, weights])?;
        }
        while let Some(activation) = activations.pop() {
            stream.launch(backward, [1024, 2], 256, [batch, weights])?;
            stream.free(activation)?;
        }
        stream.launch(adam, [4096, 1], 512, [weights, batch])?;
        stream.wait()?;
        sleep(Duration::from_millis(20));
        if step % 10 == 0 {
            println!("train: step {step} of {STEPS}");
        }
    }
    driver.free(batch)?;
    driver.free_host(input)
}

fn evaluate(driver: &Driver) -> Result<(), DriverError> {
    driver.use_device(if driver.devices()? > 1 { 1 } else { 0 })?;
    driver.allocate(1152 * MIB)?;
    for _ in 0..4 {
        let blocks = (0..8).map(|_| driver.allocate(256 * MIB)).collect::<Result<Vec<_>, _>>()?;
        sleep(Duration::from_millis(120));
        blocks.into_iter().try_for_each(|block| driver.free(block))?;
        sleep(Duration::from_millis(60));
    }
    println!("evaluate: done");
    Ok(())
}
