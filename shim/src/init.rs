//! The start of the driver.

use radrm_cuda_abi::*;

use crate::entries::EntryId;
use crate::{shell, tls, unjoined};

/// After `cuInit`: joins the job's segment, or reports why the process does not.
pub(crate) unsafe fn initialised(_entry: EntryId, call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    if !result.is_ok() {
        unjoined::init_failed(result);
    } else if !shell::valid(tls::get()) {
        unjoined::report();
    }
    result
}
