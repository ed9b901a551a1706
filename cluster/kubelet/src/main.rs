//! `radrm-kubelet-plugin`: gives containers of a Kubernetes node shares of its GPUs.

use std::process::ExitCode;

fn main() -> ExitCode {
    radrm_kubelet::main(std::env::args_os())
}
