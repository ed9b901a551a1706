//! Entry points that only pass.

use crate::entries::EntryId;
use crate::{shell, state, tls};

/// Notes that an entry point without logic of its own was called. It is the first hooked call of some
/// processes, so it joins.
#[inline(always)]
pub(crate) fn count(entry: EntryId) {
    if shell::valid(tls::get()) {
        state::page().writer().call(entry.table_id());
    }
}
