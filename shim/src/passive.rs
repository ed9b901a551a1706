//! Entry points that only pass.

use crate::entries::EntryId;
use crate::{state, tls};

/// Notes that an entry point without logic of its own was called. It is the first hooked call of some
/// processes, so it joins.
#[inline(always)]
pub(crate) fn count(_entry: EntryId) {
    let tls = tls::get();
    let epoch = tls.epoch.get();
    if epoch == 0 || epoch != state::page().epoch() {
        state::prepare(tls);
    }
}
