//! Prints the ledgers of an emulated machine: who took what on which GPU, dead processes included.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use radrm_emulator_machine::{Charge, Machine, ledgers_to_json};

const USAGE: &str = "usage: radrm-emulator-ledger FILE [--json]";

fn main() -> ExitCode {
    let (flags, files): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|a| a.starts_with('-'));
    if flags.iter().any(|f| f == "-h" || f == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let json = flags.iter().any(|f| f == "--json");
    if files.len() != 1 || flags.iter().any(|f| f != "--json") {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    let machine = match Machine::open(Path::new(&files[0])) {
        Ok(machine) => machine,
        Err(e) => {
            eprintln!("radrm-emulator-ledger: {e}");
            return ExitCode::FAILURE;
        }
    };
    let text = if json { ledgers_to_json(&machine.ledgers()) } else { table(&machine) };
    // A reader that goes away early is not a failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn table(machine: &Machine) -> String {
    let mut out = String::new();
    for gpu in 0..machine.gpu_count() {
        let memory = machine.memory(gpu);
        out += &format!(
            "GPU {gpu} {} {}: {} of {} MiB used\n",
            machine.gpu(gpu).map_or("", |g| g.name.as_str()),
            machine.spec().uuid_text(gpu),
            memory.used >> 20,
            memory.total >> 20
        );
    }
    for process in machine.ledgers() {
        let state = if process.alive { "alive" } else { "ended" };
        out += &format!("process {} ({state}) {}\n", process.pid, process.exe);
        for gpu in &process.gpus {
            out += &format!(
                "  GPU {}: requested {} now, {} peak; held {} now, {} peak; {} failed\n",
                gpu.gpu,
                gpu.total_requested_now,
                gpu.total_requested_peak,
                gpu.held_now,
                gpu.held_peak,
                gpu.failed
            );
            for kind in Charge::all() {
                let page = gpu.kind(kind);
                if page.allocations > 0 {
                    out += &format!(
                        "    {:14} requested {:>14} now {:>14} peak, held {:>14} now {:>14} peak, {} taken, {} freed\n",
                        kind.key(),
                        page.requested_now,
                        page.requested_peak,
                        page.held_now,
                        page.held_peak,
                        page.allocations,
                        page.frees
                    );
                }
            }
        }
    }
    out
}
