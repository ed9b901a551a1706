//! Frameworks that a process uses, by the libraries that it has mapped.

use radrm_profile::model::Framework;
use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};

/// Rule by which a library is recognised, and the place of its version.
struct Rule {
    name: &'static str,
    /// The file name begins with this...
    file: &'static str,
    /// ...or the path contains this folder. Empty: not checked.
    folder: &'static str,
    /// Python distributions whose `NAME-VERSION.dist-info` folder beside the
    /// package has the version. Empty: the version is in the file's name,
    /// after `.so.`.
    distributions: &'static [&'static str],
}

const fn package(
    name: &'static str,
    file: &'static str,
    folder: &'static str,
    distributions: &'static [&'static str],
) -> Rule {
    Rule { name, file, folder, distributions }
}

const fn library(name: &'static str, file: &'static str) -> Rule {
    Rule { name, file, folder: "", distributions: &[] }
}

/// Prefix of the name of a folder with a dry run's stand-ins. Their versions are those that the dry run serves, which
/// says nothing of the program's.
pub const STAND_INS: &str = "radrm-dry-run-";

/// In the order in which they are shown: what a person calls the program's
/// framework first.
const RULES: [Rule; 16] = [
    package("PyTorch", "libtorch_cpu.so", "/site-packages/torch/", &["torch"]),
    package("JAX", "xla_cuda_plugin.so", "/site-packages/jaxlib/", &["jaxlib", "jax"]),
    package("TensorFlow", "libtensorflow_framework.so", "/site-packages/tensorflow/", &["tensorflow"]),
    package("CuPy", "", "/site-packages/cupy/", &["cupy_cuda13x", "cupy_cuda12x", "cupy_cuda11x", "cupy"]),
    package("Numba", "", "/site-packages/numba/", &["numba"]),
    package("Triton", "libtriton.so", "/site-packages/triton/", &["triton"]),
    package("cuda-python", "", "/site-packages/cuda/bindings/", &["cuda_bindings"]),
    package(
        "ONNX Runtime",
        "libonnxruntime",
        "/site-packages/onnxruntime/",
        &["onnxruntime_gpu", "onnxruntime"],
    ),
    package("vLLM", "", "/site-packages/vllm/", &["vllm"]),
    library("TensorRT", "libnvinfer.so"),
    library("ggml", "libggml-cuda.so"),
    library("CUDA runtime", "libcudart.so"),
    library("cuBLAS", "libcublas.so"),
    library("cuDNN", "libcudnn.so"),
    library("NCCL", "libnccl.so"),
    library("NVRTC", "libnvrtc.so"),
];

/// Frameworks of a living process; empty if its maps cannot be read.
pub(crate) fn of_process(pid: u32) -> Vec<Framework> {
    let maps = radrm_os::Process(pid).maps().unwrap_or_default();
    let layers = OnceCell::new();
    in_maps(&String::from_utf8_lossy(&maps), &|path| {
        placed(path, || layers.get_or_init(|| layers_of(pid)).as_slice())
    })
}

/// Folders over which a process has a layer of overlayfs, as a dry run makes them.
fn layers_of(pid: u32) -> Vec<PathBuf> {
    let table = radrm_os::Process(pid).mounts().unwrap_or_default();
    String::from_utf8_lossy(&table)
        .lines()
        .filter(|line| line.split_once(" - ").is_some_and(|(_, system)| system.starts_with("overlay ")))
        // Spaces stand there as octal numbers.
        .filter_map(|line| Some(PathBuf::from(line.split(' ').nth(4)?.replace("\\040", " "))))
        .collect()
}

/// Place of a mapped file. The kernel names a file below a layer by its path in the layer's folder.
fn placed<'a>(path: &str, layers: impl FnOnce() -> &'a [PathBuf]) -> PathBuf {
    let own = PathBuf::from(path);
    if own.exists() {
        return own;
    }
    let inside = path.trim_start_matches('/');
    layers().iter().map(|layer| layer.join(inside)).find(|path| path.exists()).unwrap_or(own)
}

/// Frameworks by the text of a `/proc/PID/maps`; `place` gives the place of a file by its path there.
fn in_maps(maps: &str, place: &dyn Fn(&str) -> PathBuf) -> Vec<Framework> {
    let mut found: [Option<Framework>; RULES.len()] = [const { None }; RULES.len()];
    let mut last = "";
    for line in maps.lines() {
        let Some(at) = line.find('/') else { continue };
        let path = line[at..].trim_end_matches(" (deleted)");
        // A library has several mappings, one after the other.
        if path == last || !path.contains(".so") || path.split('/').any(|part| part.starts_with(STAND_INS)) {
            continue;
        }
        last = path;
        for (rule, found) in RULES.iter().zip(&mut found) {
            if found.as_ref().is_none_or(|framework| framework.version.is_none()) && rule.applies(path) {
                let version = rule.version(&place(path).to_string_lossy());
                *found = Some(Framework { name: rule.name.into(), version });
            }
        }
    }
    found.into_iter().flatten().collect()
}

impl Rule {
    fn applies(&self, path: &str) -> bool {
        let file = path.rsplit('/').next().unwrap_or(path);
        (!self.file.is_empty() && file.starts_with(self.file))
            || (!self.folder.is_empty() && path.contains(self.folder))
    }

    fn version(&self, path: &str) -> Option<String> {
        if self.distributions.is_empty() {
            let version = path.rsplit_once(".so.")?.1;
            return version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned());
        }
        let packages = &path[..path.find("/site-packages/")? + "/site-packages".len()];
        distribution_version(Path::new(packages), self.distributions)
    }
}

/// The version in the name of a `NAME-VERSION.dist-info` folder.
fn distribution_version(packages: &Path, names: &[&str]) -> Option<String> {
    for entry in fs::read_dir(packages).ok()?.flatten() {
        let entry = entry.file_name();
        let Some((name, version)) =
            entry.to_str().and_then(|e| e.strip_suffix(".dist-info")).and_then(|e| e.split_once('-'))
        else {
            continue;
        };
        if names.iter().any(|known| name.replace('-', "_").eq_ignore_ascii_case(known)) {
            return Some(version.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_tell_frameworks_and_versions() {
        let dir = tempfile::tempdir().unwrap();
        let packages = dir.path().join("lib/site-packages");
        for name in [
            "torch-2.15.0+cu132.dist-info",
            "numpy-2.4.dist-info",
            "torchvision-0.30.dist-info",
            "numba-0.66.0.dist-info",
        ] {
            fs::create_dir_all(packages.join(name)).unwrap();
        }
        let p = packages.display();
        let maps = format!(
            "7f00-7f01 r-xp 00000000 08:01 1   {p}/torch/lib/libtorch_cpu.so\n\
             7f01-7f02 r--p 00000000 08:01 1   {p}/torch/lib/libtorch_cpu.so\n\
             7f02-7f03 r-xp 00000000 08:01 2   {p}/nvidia/cu13/lib/libcudart.so.13 (deleted)\n\
             7f03-7f04 r-xp 00000000 08:01 3   /usr/local/cuda/lib64/libcublas.so.12.8.4.1\n\
             7f04-7f05 r-xp 00000000 08:01 4   {p}/numba/_dispatcher.cpython-311-x86_64-linux-gnu.so\n\
             7f04-7f05 r-xp 00000000 08:01 5   /tmp/{STAND_INS}x1/libnccl.so.2\n\
             7f05-7f06 rw-p 00000000 00:00 0   [heap]\n\
             7f06-7f07 rw-p 00000000 00:00 0\n\
             7f06-7f07 rw-p 00000000 00:00 0   /opt/lib/libcudnn.so\n"
        );
        let found: Vec<String> = in_maps(&maps, &|path| path.into())
            .into_iter()
            .map(|f| format!("{} {}", f.name, f.version.as_deref().unwrap_or("-")))
            .collect();
        assert_eq!(
            found,
            ["PyTorch 2.15.0+cu132", "Numba 0.66.0", "CUDA runtime 13", "cuBLAS 12.8.4.1", "cuDNN -"]
        );
    }

    #[test]
    fn a_file_below_a_layer_is_found_in_its_folder() {
        let place = tempfile::tempdir().unwrap();
        let [home, other] = ["home", "other"].map(|name| place.path().join(name));
        let packages = home.join("venv/site-packages");
        fs::create_dir_all(packages.join("torch-2.9.1.dist-info")).unwrap();
        fs::create_dir_all(packages.join("torch/lib")).unwrap();
        fs::write(packages.join("torch/lib/libtorch_cpu.so"), "").unwrap();
        let maps =
            "7f00-7f01 r-xp 00000000 08:01 1   /venv/site-packages/torch/lib/libtorch_cpu.so\n".to_owned();
        let layers = [other, home];
        let found = in_maps(&maps, &|path| placed(path, || &layers));
        assert_eq!(found[0].version.as_deref(), Some("2.9.1"));
        assert_eq!(in_maps(&maps, &|path| placed(path, || &[]))[0].version, None);
    }

    #[test]
    fn libraries_that_a_dry_run_replaces_have_rules() {
        for name in radrm_need::REPLACED {
            assert!(RULES.iter().any(|rule| rule.name == name), "{name}");
        }
    }

    #[test]
    fn a_process_without_any_has_none() {
        assert_eq!(of_process(std::process::id()), []);
        assert_eq!(of_process(u32::MAX), []);
    }
}
