//! The shim's figures beside the emulator's ledgers.

use radrm_emulator_machine::{GpuLedger, MachineSpec, ProcessLedger};
use radrm_profile::{
    Profile,
    model::{Account, Kind, Process},
};

use crate::child::Ended;

/// Results of a run.
#[derive(Debug)]
pub struct Outcome {
    /// End of the launcher, which is that of the program.
    pub ended: Ended,
    /// The profile.
    pub profile: Profile,
    /// The emulator's ledgers.
    pub ledgers: Vec<ProcessLedger>,
    /// The emulated machine's description.
    pub spec: Option<MachineSpec>,
}

fn is_used(gpu: &GpuLedger) -> bool {
    gpu.kinds.iter().take(Kind::ALL.len()).any(|k| k.requested_peak > 0)
}

impl Outcome {
    /// Asserts that the program ended with 0.
    ///
    /// # Panics
    /// If it did not.
    #[track_caller]
    pub fn ok(self) -> Self {
        let status = self.ended.status;
        assert!(
            status.success(),
            "the program ended with {status}\nstdout: {}\nstderr: {}",
            self.ended.stdout,
            self.ended.stderr
        );
        self
    }

    /// The only process that used a GPU.
    ///
    /// # Panics
    /// If there are others.
    #[track_caller]
    pub fn process(&self) -> &Process {
        let used: Vec<&Process> =
            self.profile.processes.iter().filter(|p| !p.state.accounts.is_empty()).collect();
        let [process] = used[..] else {
            panic!("{} processes used a GPU: {:?}", used.len(), self.profile.processes)
        };
        process
    }

    /// The only process's account on GPU `gpu` of the emulated machine.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn account(&self, gpu: usize) -> &Account {
        self.account_of(self.process(), gpu).expect("an account on this GPU")
    }

    /// A process's account on GPU `gpu` of the emulated machine.
    pub fn account_of<'a>(&self, process: &'a Process, gpu: usize) -> Option<&'a Account> {
        let uuid = self.spec.as_ref()?.uuid_text(gpu);
        let known = self
            .profile
            .gpus
            .iter()
            .find(|g| g.uuid.trim_start_matches("GPU-") == uuid.trim_start_matches("GPU-"))?;
        process.account(known.index)
    }

    /// Launches of a kernel, over all processes: by the program, and as nodes of graphs.
    pub fn launches(&self, kernel: &str) -> (u64, u64) {
        let kernels = self.profile.processes.iter().flat_map(|p| &p.kernels).filter(|k| k.name == kernel);
        kernels.fold((0, 0), |(a, b), k| (a + k.launches, b + k.graph_launches))
    }

    /// Peaks of processes on GPUs in MiB, in ascending order, without those that took no memory.
    #[must_use]
    pub fn peaks_mib(&self) -> Vec<u64> {
        let accounts = self.profile.processes.iter().flat_map(|process| &process.state.accounts);
        let mut peaks: Vec<u64> =
            accounts.map(|account| account.peak.0 >> 20).filter(|peak| *peak > 0).collect();
        peaks.sort_unstable();
        peaks
    }

    /// Asserts that the profile says of every process, GPU and kind of memory what the ledger says,
    /// byte for byte: now (at the end) and peak. Returns the number of processes compared.
    ///
    /// # Panics
    /// With every figure that differs.
    #[track_caller]
    pub fn assert_equals_ledger(&self) -> usize {
        let (compared, wrong) = self.compare();
        assert!(
            wrong.is_empty(),
            "the figures differ from the ledger:\n{}\n{}",
            wrong.join("\n"),
            self.ended.stderr
        );
        compared
    }

    /// Compares like [`Outcome::assert_equals_ledger`]: the number of processes compared, and a line
    /// for every figure that differs.
    pub fn compare(&self) -> (usize, Vec<String>) {
        let mut wrong = Vec::new();
        let mut compared = 0;
        let mut taken = vec![false; self.profile.processes.len()];
        for ledger in &self.ledgers {
            let used: Vec<&GpuLedger> = ledger.gpus.iter().filter(|g| is_used(g)).collect();
            if used.is_empty() {
                continue;
            }
            // A process id can stand more than once: exec keeps it. Both lists are in the order of
            // joining.
            let found = (0..taken.len()).find(|i| {
                !taken[*i] && {
                    let process = &self.profile.processes[*i];
                    process.identity.pid == ledger.pid && !process.state.accounts.is_empty()
                }
            });
            let Some(index) = found else {
                wrong.push(format!("process {} ({}) is not in the profile", ledger.pid, ledger.exe));
                continue;
            };
            taken[index] = true;
            compared += 1;
            for gpu in used {
                self.compare_gpu(&self.profile.processes[index], gpu, &mut wrong);
            }
        }
        for (process, taken) in self.profile.processes.iter().zip(&taken) {
            let held = process.state.accounts.iter().any(|a| a.kinds.iter().any(|k| k.peak.0 > 0));
            if held && !taken {
                wrong.push(format!(
                    "process {} is in the profile but not in the ledger",
                    process.identity.pid
                ));
            }
        }
        (compared, wrong)
    }

    fn compare_gpu(&self, process: &Process, ledger: &GpuLedger, wrong: &mut Vec<String>) {
        let pid = process.identity.pid;
        let Some(account) = self.account_of(process, ledger.gpu) else {
            wrong.push(format!("process {pid}: GPU {} is not in the profile", ledger.gpu));
            return;
        };
        let mut same = |what: &str, shim: u64, emulator: u64| {
            if shim != emulator {
                wrong.push(format!(
                    "process {pid}, GPU {}: {what}: profile {shim}, ledger {emulator}",
                    ledger.gpu
                ));
            }
        };
        for kind in Kind::ALL {
            let (ours, theirs) = (account.kinds[kind.index()], ledger.kinds[kind.index()]);
            same(&format!("{kind:?} now"), ours.now.0, theirs.requested_now);
            same(&format!("{kind:?} peak"), ours.peak.0, theirs.requested_peak);
        }
        same("total now", account.now.0, ledger.total_requested_now);
        same("total peak", account.peak.0, ledger.total_requested_peak);
    }
}
