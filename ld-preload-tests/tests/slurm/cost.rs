//! Cost of the plug-in for a step: measured, not asserted.

use std::fs;
use std::time::Instant;

use radrm_emulator_machine::{Machine, MachineSpec};
use radrm_preload_tests::{artifacts, child, rig::PATIENCE, slurm::Slurm};

const ROUNDS: usize = 25;

/// Milliseconds of a step of so many tasks.
fn step(slurm: &Slurm, tasks: usize, options: &[&str]) -> f64 {
    let mut command = slurm.command("srun");
    command.args(["-n", &tasks.to_string()]).args(options).arg("/bin/true");
    let begin = Instant::now();
    child::run(command, PATIENCE).ok();
    begin.elapsed().as_secs_f64() * 1000.0
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[test]
#[ignore = "a measurement"]
fn a_step_costs_little_more_with_the_options() {
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    // The program itself, without the script that keeps the data of the other tests' users apart.
    let stack = fs::read_to_string(slurm.path("plugstack.conf")).expect("plugstack.conf");
    let (script, program) = (slurm.path("radrm-run"), artifacts::file("radrm-run"));
    let stack = stack.replace(&format!("run={}", script.display()), &format!("run={}", program.display()));
    // A node with GPUs has its ledgers in memory: on a disk each page of a new one is read and written back.
    let memory = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let (disk, machine) = (slurm.path("gpus/machine1"), memory.path().join("machine1"));
    let described = slurm.path("machine.toml");
    let spec = MachineSpec::parse(described.to_str().expect("text")).expect("description");
    Machine::create(&spec, &machine).expect("emulated machine");
    let stack =
        stack.replace(&format!("machine={}", disk.display()), &format!("machine={}", machine.display()));
    let setups: [(&str, bool, &[&str]); 4] = [
        ("no plug-in", false, &[]),
        ("plug-in, no option", true, &[]),
        ("--gpu-mem --radrm=limit", true, &["--gpu-mem=100MiB", "--radrm=limit"]),
        ("--gpu-mem", true, &["--gpu-mem=100MiB"]),
    ];
    for tasks in [1, 16] {
        let mut times = setups.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            // In turns, so that what else the machine does meets all alike.
            for ((_, plugged, options), times) in setups.iter().zip(&mut times) {
                let text = if *plugged { stack.as_str() } else { "" };
                fs::write(slurm.path("plugstack.conf"), text).expect("plugstack.conf");
                times.push(step(&slurm, tasks, options));
            }
        }
        let bases = times[0].clone();
        for ((name, ..), times) in setups.iter().zip(&mut times) {
            let added = times.iter().zip(&bases).map(|(time, base)| (time - base) / tasks as f64);
            let each = median(&mut added.collect::<Vec<_>>());
            let time = median(times);
            let (least, most) = (times[0], times[times.len() - 1]);
            eprintln!("| {tasks} | {name} | {time:.1} ({least:.1}-{most:.1}) | {each:+.2} |");
        }
    }
}
