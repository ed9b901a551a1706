//! The memory holders under a limit.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::{Ledger, LedgerRow, words};
use crate::layout::SlotState;
use crate::sync::Ordering::{Acquire, Relaxed};

impl Ledger {
    /// Calls `visit` with process id and bytes of every member that has something of a GPU reserved. Dead ones
    /// may be among them, see [`Ledger::sweep`].
    pub fn each_holder(&self, row: LedgerRow, mut visit: impl FnMut(u32, u64)) {
        let area = self.area();
        let Some(reserved) = area.reserved.get(usize::from(row.number())) else { return };
        for ((_, member), word) in area.used_members().zip(reserved) {
            let word = word.load(Relaxed);
            let state = SlotState(member.state.load(Acquire));
            if words::bytes_of(word) > 0 && words::is_of(word, state.generation()) {
                visit(state.pid(), words::bytes_of(word));
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::file::tests::scratch;
    use super::*;

    #[test]
    fn each_members_memory_is_listed() {
        let file = scratch(&[]);
        let ledger = Ledger::join_file(file.path_c()).unwrap();
        let row = ledger.gpu(&[1; 16], 1000).unwrap();
        let holders = || {
            let mut holders = Vec::new();
            ledger.each_holder(row, |pid, bytes| holders.push((pid, bytes)));
            holders
        };
        assert_eq!(holders(), []);
        ledger.add(row, 70);
        assert_eq!(holders(), [(std::process::id(), 70)]);
    }
}
