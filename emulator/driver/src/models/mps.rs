//! Multiprocessors and memory that MPS leaves to a process.
//!
//! `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` limits how many multiprocessors the kernels of a process get, and only
//! where a control daemon listens in the pipe directory: without one it does nothing, as on a real GPU.
//!
//! Under protocol 3 the pipe directory is that of a namespace. Its share goes before the process's own variable, its limit on memory
//! holds for each process, and the partition that `CUDA_MPS_SM_PARTITION` names has multiprocessors that no other partition has:
//! the process sees a GPU of just these. A stand-in of the control daemon writes limits and partitions into files, since no
//! client can ask the genuine one for them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// File of a namespace's limits, in its directory: `percent N` and `memory_mib N`.
const LIMITS: &str = "standin-limits";
/// File of a server's partitions, in its directory: a GPU's UUID, an id and a number of multiprocessors in each line.
const PARTITIONS: &str = "standin-partitions";

/// Directory in which this process looks for MPS.
fn pipe() -> PathBuf {
    env::var_os("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|| "/tmp/nvidia-mps".into()).into()
}

/// Returns true if a control daemon of MPS listens where this process looks for one.
pub fn is_client() -> bool {
    pipe().join("control").exists()
}

/// The share of the multiprocessors that this process may use (percent).
pub fn percent() -> f64 {
    let said = env::var("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").ok().and_then(|text| text.trim().parse().ok());
    let percent = said.filter(|percent| (0.0..=100.0).contains(percent));
    let of_namespace = limit(&pipe(), "percent").map(|percent| percent as f64);
    of_namespace.or(percent).filter(|_| is_client()).unwrap_or(100.0)
}

/// Memory that this process may hold on a GPU by its namespace, bytes.
pub fn memory_limit() -> Option<u64> {
    limit(&pipe(), "memory_mib").filter(|_| is_client()).map(|mib| mib << 20)
}

/// The GPU, by UUID, and the number of multiprocessors of the partition that this process is in.
pub fn partition() -> Option<(String, u32)> {
    let value = env::var("CUDA_MPS_SM_PARTITION").ok().filter(|_| is_client())?;
    let (gpu, id) = value.split_once('/')?;
    let pipe = pipe();
    let server = pipe.parent()?;
    let sms = [server, &pipe].into_iter().find_map(|folder| sms_of(folder, gpu, id))?;
    Some((gpu.to_owned(), sms))
}

fn limit(namespace: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(namespace.join(LIMITS)).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

fn sms_of(server: &Path, gpu: &str, id: &str) -> Option<u32> {
    let text = fs::read_to_string(server.join(PARTITIONS)).ok()?;
    text.lines().find_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
        [uuid, name, sms] if uuid == gpu && name == id => sms.parse().ok(),
        _ => None,
    })
}

/// A share of `all` multiprocessors: rounded up, and never none.
pub fn portion(all: u32, percent: f64) -> u32 {
    ((f64::from(all) * percent / 100.0).ceil() as u32).clamp(1, all.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up_to_whole_multiprocessors() {
        assert_eq!(portion(132, 30.0), 40);
        assert_eq!(portion(132, 100.0), 132);
        assert_eq!(portion(132, 0.0), 1);
        assert_eq!(portion(0, 50.0), 1);
    }

    #[test]
    fn limits_and_partitions_are_read_by_name() {
        let folder = env::temp_dir().join(format!("radrm-mps-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert_eq!((limit(&folder, "percent"), sms_of(&folder, "GPU-a", "x")), (None, None));
        fs::write(folder.join(LIMITS), "percent 40\nmemory_mib 512\n").unwrap();
        fs::write(folder.join(PARTITIONS), "GPU-a x 54\nGPU-b x 8\n").unwrap();
        assert_eq!((limit(&folder, "percent"), limit(&folder, "memory_mib")), (Some(40), Some(512)));
        assert_eq!((sms_of(&folder, "GPU-b", "x"), sms_of(&folder, "GPU-b", "y")), (Some(8), None));
        fs::remove_dir_all(&folder).unwrap();
    }
}
