//! Meaning of a failed `cuInit`, and its remedy.

use crate::result::RESULTS;

/// Words for a code that `cuInit` returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InitFailure {
    /// Name of the code; empty if it is not known.
    pub name: &'static str,
    /// Its meaning for a program that starts: a clause.
    pub meaning: &'static str,
    /// Remedy for the user: a clause.
    pub remedy: &'static str,
}

/// The code of a kernel driver and libraries of different versions: NVML reports the same as its number 18.
pub const DRIVER_MISMATCH: u32 = 803;

/// Remedy where nothing better is known.
const ANY_REMEDY: &str = "see the kernel's log for lines with NVRM or Xid (dmesg), and run `radrm doctor`";

/// Code, meaning and remedy. Names are those of [`RESULTS`].
const FAILURES: &[(u32, &str, &str)] = &[
    (
        1,
        "the driver rejects the call's arguments: the program calls cuInit with flags",
        "call cuInit(0); a library that calls it otherwise is damaged or of another driver",
    ),
    (
        2,
        "the driver has no memory left on the host or the GPU",
        "free memory (free -h, nvidia-smi), and raise limits on host memory (ulimit -v, the container's or the job's limit)",
    ),
    (
        3,
        "the driver cannot be initialized in this process, often one that was forked after CUDA had been used",
        "start processes that use CUDA by spawn and not by fork (Python: multiprocessing.set_start_method(\"spawn\")); else \
         check that /dev/nvidia* can be opened",
    ),
    (
        34,
        "the program has loaded the toolkit's stub of libcuda.so in place of the driver",
        "remove the toolkit's `stubs` folder from LD_LIBRARY_PATH and the program's RPATH",
    ),
    (
        46,
        "the GPU is busy or not available: exclusive compute mode with another process on it, or a reset that is due",
        "end the other process, or have root set the compute mode (nvidia-smi -c DEFAULT), or reset the GPU (nvidia-smi -r)",
    ),
    (
        100,
        "the driver sees no GPU: CUDA_VISIBLE_DEVICES hides all, the container was given none, MIG is on without instances, \
         or the machine has none",
        "check CUDA_VISIBLE_DEVICES and `nvidia-smi -L`; make MIG instances (nvidia-smi mig -cgi ... -C) or switch MIG off; \
         start the container with its GPUs (--gpus all)",
    ),
    (
        101,
        "CUDA_VISIBLE_DEVICES names a GPU or a MIG instance that does not exist",
        "take a number or UUID from `nvidia-smi -L`",
    ),
    (
        102,
        "the virtual GPU has no licence",
        "check the licence server of the vGPU (nvidia-smi -q | grep License)",
    ),
    (
        214,
        "a GPU has reported a memory error that cannot be corrected",
        "reset the GPU (nvidia-smi -r) or reboot, and check `nvidia-smi -q -d ECC,ROW_REMAPPER`",
    ),
    (
        304,
        "a system call of the driver failed: the device files cannot be opened, or the sandbox forbids them",
        "check the rights on /dev/nvidia*, and the system call filter and devices of the container",
    ),
    (
        800,
        "this process may not use the GPU",
        "check the rights on /dev/nvidia*, and the devices that the job's control group allows",
    ),
    (
        801,
        "the driver does not support this GPU or this system",
        "check the driver's release notes for the GPU, and the kernel module's flavour (open or proprietary)",
    ),
    (
        802,
        "the system is not ready: on machines with NVSwitch the fabric manager does not run, or has not finished",
        "start the fabric manager of the driver's version (systemctl start nvidia-fabricmanager), and check `nvidia-smi -q | \
         grep -A2 Fabric`",
    ),
    (
        DRIVER_MISMATCH,
        "the kernel module and libcuda.so are of different driver versions, mostly after an upgrade without a reboot",
        "reload the kernel modules (stop all GPU programs, rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia, modprobe nvidia) \
         or reboot; in a container start it anew",
    ),
    (
        804,
        "the forward compatibility package (cuda-compat) does not support this GPU: it needs a data center GPU",
        "remove cuda-compat from LD_LIBRARY_PATH, and use a CUDA version that the installed driver supports, or update the \
         driver",
    ),
    (
        805,
        "the process cannot reach the control daemon of MPS",
        "start nvidia-cuda-mps-control, or unset CUDA_MPS_PIPE_DIRECTORY if MPS is not wanted",
    ),
    (
        806,
        "the server of MPS does not answer",
        "restart MPS: echo quit | nvidia-cuda-mps-control, then start it again",
    ),
    (807, "the server of MPS takes no new clients now", "start the program again in a moment"),
    (808, "the server of MPS has as many clients as the GPU allows", "run fewer processes under MPS at once"),
    (
        809,
        "the server of MPS has as many connections as the GPU allows",
        "lower CUDA_DEVICE_MAX_CONNECTIONS, or run fewer processes under MPS at once",
    ),
    (
        919,
        "the NVLink fabric is not ready",
        "start the fabric manager (systemctl start nvidia-fabricmanager) and wait until `nvidia-smi -q` shows it as completed",
    ),
    (
        999,
        "the driver gives no reason: often after the machine slept, with nvidia_uvm not loaded, or with a GPU that has failed",
        "reload nvidia_uvm (rmmod nvidia_uvm; modprobe nvidia_uvm) or reboot; the kernel's log has the cause (dmesg | grep -e \
         NVRM -e Xid)",
    ),
];

/// Words for a code; any code has some.
#[must_use]
pub fn init_failure(code: u32) -> InitFailure {
    let known = RESULTS.iter().find(|(result, ..)| result.0 == code);
    let (name, text) = known
        .map_or(("", "a code that this version of RADRM does not know"), |(_, name, text)| (*name, *text));
    let failure = FAILURES.iter().find(|(failure, ..)| *failure == code);
    let (meaning, remedy) = failure.map_or((text, ANY_REMEDY), |(_, meaning, remedy)| (*meaning, *remedy));
    InitFailure { name, meaning, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_meaning_and_a_remedy() {
        for (result, name, text) in RESULTS {
            let words = init_failure(result.0);
            assert_eq!(words.name, *name);
            assert!(!words.meaning.is_empty() && !words.remedy.is_empty(), "{name} {text}");
        }
        assert_eq!(init_failure(4711).name, "");
        assert!(!init_failure(4711).remedy.is_empty());
        for (code, ..) in FAILURES {
            assert!(!init_failure(*code).name.is_empty(), "{code} is no code of the driver");
        }
        assert!(FAILURES.is_sorted_by_key(|(code, ..)| *code));
    }
}
