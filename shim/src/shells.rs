//! The exported entry points, generated from the driver's table and `hooks.tsv`.

use core::ffi::{c_char, c_int, c_uint, c_void};

use radrm_cuda_abi::*;

use crate::entries::EntryId;
use crate::shell;

// `launch_shell!` stands in `launch_shell.rs`, which comes before this module.
include!(concat!(env!("OUT_DIR"), "/shells.rs"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries::find;

    #[test]
    fn a_shell_is_that_of_its_place() {
        for (symbol, shell) in
            [(c"cuMemAlloc_v2", cuMemAlloc_v2 as *const ()), (c"cuInit", cuInit as *const ())]
        {
            assert_eq!(find(symbol).unwrap().wrapper(), shell);
        }
    }
}
