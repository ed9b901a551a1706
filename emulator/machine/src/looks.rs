//! Looks at one GPU: what NVML asks many times a second, without the rest of the ledgers.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::checkpoint::{self, CheckpointState};
use crate::layout::{LIVE, generation_of, state_of};
use crate::ledger::{GpuLedger, read_ledger};
use crate::liveness::pid_namespace;
use crate::machine::{Machine, identity};

/// Sums over all processes of the ledgers on one GPU, dead ones included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GpuTotals {
    /// Modelled time of kernels (ns).
    pub busy_ns: u64,
    /// Modelled time of copies (ns).
    pub copy_ns: u64,
}

/// A living process with a ledger on a GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GpuUser {
    /// Process id.
    pub pid: u32,
    /// Time of joining (CLOCK_MONOTONIC, ns).
    pub joined_ns: u64,
    /// Checkpoint state: whether it is locked or checkpointed.
    pub checkpoint: CheckpointState,
    /// Its ledger on this GPU.
    pub ledger: GpuLedger,
}

impl Machine {
    /// Sums of one GPU's ledgers. Does not ask whether a process lives.
    pub fn totals(&self, gpu: usize) -> GpuTotals {
        let slots = self.layout().slots.iter().take(self.slots_used());
        let ledgers = slots.filter(|slot| state_of(slot.state.load(Acquire)) >= LIVE);
        ledgers.filter_map(|slot| slot.ledgers.get(gpu)).fold(GpuTotals::default(), |sum, ledger| GpuTotals {
            busy_ns: sum.busy_ns.saturating_add(ledger.busy_ns.load(Relaxed)),
            copy_ns: sum.copy_ns.saturating_add(ledger.copy_ns.load(Relaxed)),
        })
    }

    /// The living processes with a ledger on a GPU, in the order of joining. Whether one lives is asked only of those.
    /// Processes of other pid namespaces are left out: here their numbers mean others, or none.
    pub fn users(&self, gpu: usize) -> Vec<GpuUser> {
        let mut users: Vec<(u64, GpuUser)> =
            (0..self.slots_used()).filter_map(|index| self.user(index, gpu)).collect();
        users.sort_by_key(|(order, _)| *order);
        users.into_iter().map(|(_, user)| user).collect()
    }

    fn user(&self, index: usize, gpu: usize) -> Option<(u64, GpuUser)> {
        let slot = self.layout().slots.get(index)?;
        // Partner: the Release store at the end of `Process::join`.
        let word = slot.state.load(Acquire);
        if state_of(word) != LIVE || slot.namespace.load(Relaxed) != pid_namespace() {
            return None;
        }
        let held = self.layout().held.get(gpu)?[index].load(Relaxed);
        let ledger = read_ledger(gpu, slot.ledgers.get(gpu)?, held);
        let id = identity(slot);
        let user = GpuUser {
            pid: id.pid,
            joined_ns: slot.joined_mono_ns.load(Relaxed),
            checkpoint: checkpoint::state(slot),
            ledger,
        };
        let order = slot.order.load(Relaxed);
        // The slot went to another process meanwhile: what was read belongs to neither.
        let is_same = generation_of(slot.state.load(Acquire)) == generation_of(word);
        (is_same && !user.ledger.is_empty() && self.lives(slot)).then_some((order, user))
    }
}

#[cfg(test)]
mod tests {
    use crate::machine::Machine;
    use crate::spec::MachineSpec;
    use radrm_base::Kind;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn looks_agree_with_the_ledgers() {
        let machine = Machine::private(&MachineSpec::parse("2xH200").unwrap()).unwrap();
        let processes: Vec<_> = (0..5).map(|_| machine.join().unwrap()).collect();
        for (n, process) in processes.iter().enumerate() {
            process.launched(n % 2, 1, 100 + n as u64);
            process.copied(0, n as u64);
            process.charge(1, Kind::Device, 5, 2 << 20).unwrap();
        }
        let dead = processes.into_iter().next_back();
        drop(dead);
        for gpu in 0..2 {
            let ledgers = machine.ledgers();
            let on = |alive: bool| {
                ledgers.iter().filter(move |b| b.alive || !alive).filter_map(move |b| Some((b, b.gpu(gpu)?)))
            };
            let users = machine.users(gpu);
            assert_eq!(users.len(), on(true).count());
            for (user, (process, ledger)) in users.iter().zip(on(true)) {
                assert_eq!(
                    (user.pid, user.joined_ns, &user.ledger),
                    (process.pid, process.joined_ns, ledger)
                );
            }
            let totals = machine.totals(gpu);
            assert_eq!(totals.busy_ns, on(false).map(|(_, ledger)| ledger.busy_ns).sum::<u64>());
            assert_eq!(totals.copy_ns, on(false).map(|(_, ledger)| ledger.copy_ns).sum::<u64>());
        }
    }

    #[test]
    fn a_process_of_another_pid_namespace_is_no_user_under_its_number_there() {
        let machine = Machine::private(&MachineSpec::parse("1xH200").unwrap()).unwrap();
        let [here, elsewhere] = [0, 1].map(|_| machine.join().unwrap());
        for process in [&here, &elsewhere] {
            process.charge(0, Kind::Device, 5, 2 << 20).unwrap();
        }
        assert_eq!(machine.users(0).len(), 2);
        elsewhere.slot().namespace.store(1, Relaxed);
        assert_eq!(machine.users(0).len(), 1);
        assert_eq!(machine.ledgers().len(), 2);
    }
}
