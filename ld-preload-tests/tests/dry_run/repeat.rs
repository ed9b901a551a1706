//! Many runs in a row, of everything that the suite runs once: each ends as the first did, with the same figures,
//! and leaves no memory, process or file.
//!
//! The short one is part of the suite. The long one takes an hour: `cargo nextest run -p radrm-preload-tests -E
//! 'binary(dry_run)' --run-ignored only --no-capture`; RADRM_TEST_RUNS sets how many runs of each there are.

use radrm_emulator_machine::{Machine, MachineSpec};
use radrm_preload_tests::python::script;

use super::harness::{DryRun, dry_run, dry_run_with, python};

/// One kind of program.
struct Example {
    name: &'static str,
    /// The machine.
    machine: &'static str,
    options: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    /// A program of `clients/` and its arguments; one with a line break is code.
    program: &'static [&'static str],
    /// Exit code of the program.
    code: i32,
}

const ONE: Example =
    Example { name: "", machine: "H200", options: &[], variables: &[], program: &[], code: 0 };

const SMALL: &str = "import torch
model = torch.nn.Linear(512, 512).cuda()
model(torch.randn(8, 512, device='cuda')).sum().backward()
";

const COMPILED: &str = "import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)).cuda()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(2):
    compiled(torch.randn(32, 64, device='cuda')).sum().backward()
    optimizer.step()
";

/// Workers that load data, pinned memory, a threaded backward pass, and a loader that is left half way.
const LOADED: &str = "import torch
data = torch.utils.data.TensorDataset(torch.randn(256, 8))
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = torch.utils.data.DataLoader(data, 8, num_workers=2, pin_memory=True, persistent_workers=True)
for epoch in range(2):
    for number, (x,) in enumerate(loader):
        model(x.cuda(non_blocking=True)).sum().backward()
        optimizer.step()
        if number == 5:
            break
";

const EXAMPLES: [Example; 14] = [
    Example { name: "eager", program: &["dry_run_models.py", "resnet50", "4", "sgd"], ..ONE },
    Example {
        name: "autocast",
        program: &["dry_run_models.py", "resnet50", "4", "amp", "channels_last"],
        ..ONE
    },
    Example { name: "fused AdamW", program: &["dry_run_gpt2.py", "--batch-size", "1"], ..ONE },
    Example { name: "foreach Adam", program: &["dry_run_models.py", "bert_base", "1"], ..ONE },
    Example { name: "checkpointing", program: &["dry_run_models.py", "gpt2", "1", "checkpoint"], ..ONE },
    Example {
        name: "expandable segments",
        variables: &[("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")],
        program: &["dry_run_gpt2.py", "--batch-size", "1"],
        ..ONE
    },
    Example { name: "CUDA graph", program: &["dry_run_operations.py", "cuda graph", "events"], ..ONE },
    Example { name: "compiled", program: &[COMPILED], ..ONE },
    Example { name: "loader", program: &[LOADED], ..ONE },
    Example { name: "convolutions", program: &["dry_run_models.py", "mobilenet_v2", "2"], ..ONE },
    Example { name: "all libraries", program: &["dry_run_operations.py"], ..ONE },
    Example { name: "two processes", machine: "2xA100-40GB", program: &["dry_run_ddp.py"], ..ONE },
    Example {
        name: "two processes, sharded",
        machine: "2xA100-40GB",
        program: &["dry_run_ddp.py", "fsdp"],
        ..ONE
    },
    Example {
        name: "out of memory",
        machine: "T4",
        program: &["dry_run_gpt2.py", "--batch-size", "32"],
        code: 1,
        ..ONE
    },
];

impl Example {
    fn run(&self, python: &std::path::Path, machine: &str, is_plain: bool) -> DryRun {
        let first = match self.program[0] {
            code if code.contains('\n') => vec!["-c".to_owned(), code.to_owned()],
            name => vec![script(name)],
        };
        let words: Vec<&str> =
            first.iter().map(String::as_str).chain(self.program[1..].iter().copied()).collect();
        let options: Vec<&str> =
            ["--machine", machine].into_iter().chain(self.options.iter().copied()).collect();
        if is_plain {
            dry_run_with(python, &options, self.variables, &words)
        } else {
            dry_run(python, &options, &words)
        }
    }
}

/// Runs an example several times on one machine, which keeps what a run does not give back; the first `plain` of them by
/// Python itself, also where a server could fork them.
fn many_times(python: &std::path::Path, example: &Example, times: usize, plain: usize) -> Vec<String> {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("machine");
    let machine =
        Machine::create(&MachineSpec::parse(example.machine).expect("model"), &file).expect("machine");
    let mut problems = Vec::new();
    let mut first: Option<String> = None;
    for number in 0..times {
        let run = example.run(python, &file.to_string_lossy(), number < plain);
        let told = &run.report["dry_run"];
        let figures = format!("{} {} {}", told["gpus"], told["withheld"], told["out_of_memory"]);
        let mut check = |right: bool, what: String| {
            if !right {
                problems.push(format!("{}, run {number}: {what}", example.name));
            }
        };
        check(
            run.ended.status.code() == Some(example.code),
            format!("ended with {:?}\n{}\n{}", run.ended.status, run.ended.stdout, run.ended.stderr),
        );
        for gpu in 0..machine.gpu_count() {
            let used = machine.memory(gpu).used;
            check(used == 0, format!("{used} bytes of GPU {gpu} are not given back"));
        }
        let left = run.left();
        check(left.is_empty(), left.join(", "));
        let usual = first.get_or_insert_with(|| figures.clone());
        check(*usual == figures, format!("{figures} instead of {usual}"));
    }
    problems
}

#[test]
fn twenty_runs_in_a_row_end_well_and_leave_nothing() {
    let Some(python) = python() else { return };
    let example = Example { name: "small", program: &[SMALL], ..ONE };
    let problems = many_times(&python, &example, 20, 5);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
#[ignore = "takes an hour"]
fn twenty_runs_of_every_kind_of_program_end_well_and_leave_nothing() {
    let Some(python) = python() else { return };
    let times = std::env::var("RADRM_TEST_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let mut problems = Vec::new();
    for example in &EXAMPLES {
        let found = many_times(&python, example, times, times);
        println!("{}: {times} runs, {} problems", example.name, found.len());
        found.iter().for_each(|problem| println!("  {problem}"));
        problems.extend(found);
    }
    for number in 0..times {
        let options = ["--emulate", "T4", "--find-batch", "--batch-size=7..8"];
        let run = dry_run(&python, &options, &[&script("dry_run_gpt2.py"), "--steps", "2"]);
        let found = run.left();
        if !run.ended.status.success() || !found.is_empty() {
            problems.push(format!("find-batch, run {number}: {:?} {found:?}", run.ended));
        }
    }
    println!("find-batch: {times} runs, {} problems altogether", problems.len());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
