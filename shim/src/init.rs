//! The start of the driver.

use radrm_cuda_abi::*;

use crate::entries::EntryId;
use crate::{shell, tls};

/// After `cuInit`: joins the job's segment.
pub(crate) unsafe fn initialised(_entry: EntryId, call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    if result.is_ok() {
        shell::valid(tls::get());
    }
    result
}
