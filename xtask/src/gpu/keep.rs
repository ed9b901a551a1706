//! Results of a run on a real GPU, kept in the repository.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::figures;

/// Version of `result.json` that is understood.
const VERSION: u64 = 1;

/// Copies the results in `from` to the folder of their GPU, in place of older ones, and has README tell them.
///
/// # Errors
/// These are no results, or none of a full run on a real GPU.
pub fn keep(root: &Path, from: &Path) -> Result<PathBuf> {
    let file = from.join("result.json");
    let text = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    let result: Value = serde_json::from_str(&text).with_context(|| format!("{}", file.display()))?;
    let gpu = check(&result)?;
    let folder = root.join(figures::RESULTS).join(slug(gpu));
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    let summary = from.join("summary.md");
    let summary = fs::read(&summary).with_context(|| format!("{}", summary.display()))?;
    // Written, not copied: what comes back from another machine may be read-only.
    fs::write(folder.join("result.json"), text)?;
    fs::write(folder.join("summary.md"), summary)?;
    figures::write(root)?;
    Ok(folder)
}

/// The GPU of a result that may be kept.
fn check(result: &Value) -> Result<&str> {
    match result["version"].as_u64() {
        Some(VERSION) => {}
        version => bail!("result.json has version {version:?}, and {VERSION} is understood"),
    }
    if let Some(emulated) = result["emulated"].as_str() {
        bail!("these results are of emulated GPUs ({emulated}): only what a real one gave is kept");
    }
    if result["short"].as_bool() == Some(true) {
        bail!("these results are of a short run");
    }
    result["gpu"].as_str().context("these results name no GPU")
}

/// A folder's name for a GPU.
fn slug(gpu: &str) -> String {
    let words = gpu.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn results(result: &Value) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("result.json"), result.to_string()).unwrap();
        fs::write(dir.path().join("summary.md"), "# summary\n").unwrap();
        dir
    }

    fn of_a_gpu() -> Value {
        json!({"version": 1, "gpu": "NVIDIA H100 80GB HBM3", "driver": "580.1", "emulated": null, "short": false,
               "commit": "abc", "date": "2026-11-21 12:00 UTC", "steps": []})
    }

    #[test]
    fn results_go_to_the_folder_of_their_gpu_and_readme_tells_them() {
        let root = tempfile::tempdir().unwrap();
        let readme = root.path().join("README.md");
        fs::write(&readme, format!("before\n{}\nold\n{}\nafter\n", figures::BEGIN, figures::END)).unwrap();
        let folder = keep(root.path(), results(&of_a_gpu()).path()).unwrap();
        assert!(folder.ends_with("bench/gpu/nvidia-h100-80gb-hbm3"));
        assert_eq!(fs::read_to_string(folder.join("summary.md")).unwrap(), "# summary\n");
        let told = fs::read_to_string(&readme).unwrap();
        assert!(told.starts_with("before\n") && told.ends_with("after\n"), "{told}");
        assert!(told.contains("NVIDIA H100 80GB HBM3") && !told.contains("\nold\n"), "{told}");
    }

    #[test]
    fn only_whole_runs_on_real_gpus_are_kept() {
        for (key, value, said) in [
            ("emulated", json!("1xH100-80GB"), "of emulated GPUs (1xH100-80GB)"),
            ("short", json!(true), "of a short run"),
            ("gpu", json!(null), "name no GPU"),
            ("version", json!(2), "has version Some(2)"),
        ] {
            let mut result = of_a_gpu();
            result[key] = value;
            let root = tempfile::tempdir().unwrap();
            let refused = format!("{:#}", keep(root.path(), results(&result).path()).unwrap_err());
            assert!(refused.contains(said), "{refused}");
            assert!(!root.path().join("bench").exists());
        }
    }
}
