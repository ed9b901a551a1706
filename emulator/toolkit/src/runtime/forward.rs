//! Runtime functions whose arguments mean the same to the driver: handles, flags and structures are the
//! same, only the name differs. The list is `data/forwards.tsv`.

use core::ffi::{c_int, c_void};

use radrm_cuda_abi::CUresult;

use super::call;
use radrm_cuda_client::{Entry, checked};

include!(concat!(env!("OUT_DIR"), "/forwards.rs"));
