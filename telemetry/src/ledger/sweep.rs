//! Return of bytes that dead members had reserved.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::home::Home;
use super::layout::LedgerArea;
use super::living::Living;
use super::row::LedgerRow;
use super::words;
use crate::sync::Ordering::Acquire;

/// Clears the words of dead members of a GPU. `own`: a member that is known to live.
pub(super) fn sweep(area: &LedgerArea, home: Home, row: LedgerRow, own: Option<u16>) {
    let number = usize::from(row.number());
    let Some(words) = area.reserved.get(number) else { return };
    let living = Living::of(home);
    for ((index, member), word) in area.used_members().zip(words) {
        if words::bytes_of(word.load(Acquire)) == 0 || own == u16::try_from(index).ok() {
            continue;
        }
        let Some(generation) = living.dead(index, member) else { continue };
        let of_gpu = [&area.reserved, &area.overhead, &area.charged].map(|rows| rows.get(number));
        for word in of_gpu.into_iter().flatten().filter_map(|row| row.get(index)) {
            words::clear(word, generation);
        }
    }
}
