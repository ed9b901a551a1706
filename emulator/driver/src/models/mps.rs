//! The share of the multiprocessors that MPS leaves to a process.
//!
//! `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` limits how many multiprocessors the kernels of a process get, and only
//! where a control daemon listens in the pipe directory: without one it does nothing, as on a real GPU.

use std::env;
use std::path::Path;

/// Returns true if a control daemon of MPS listens where this process looks for one.
pub fn is_client() -> bool {
    let pipe = env::var_os("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|| "/tmp/nvidia-mps".into());
    Path::new(&pipe).join("control").exists()
}

/// The share of the multiprocessors that this process may use (percent).
pub fn percent() -> f64 {
    let said = env::var("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").ok().and_then(|text| text.trim().parse().ok());
    let percent = said.filter(|percent| (0.0..=100.0).contains(percent));
    percent.filter(|_| is_client()).unwrap_or(100.0)
}

/// A share of `all` multiprocessors: rounded up, and never none.
pub fn portion(all: u32, percent: f64) -> u32 {
    ((f64::from(all) * percent / 100.0).ceil() as u32).clamp(1, all.max(1))
}

#[cfg(test)]
mod tests {
    use super::portion;

    #[test]
    fn a_share_is_rounded_up_to_whole_multiprocessors() {
        assert_eq!(portion(132, 30.0), 40);
        assert_eq!(portion(132, 100.0), 132);
        assert_eq!(portion(132, 0.0), 1);
        assert_eq!(portion(0, 50.0), 1);
    }
}
