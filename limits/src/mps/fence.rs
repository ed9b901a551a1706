//! MPS's own limit on memory, `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`, as a second fence.

use radrm_os::nvml::Gpu;

/// The variable.
pub const VARIABLE: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";

/// MPS counts what the driver itself takes for a process, the quota knows that only when it has been
/// measured. So much more is let through, or the fence would refuse what the quota grants.
const SLACK: u64 = 512 << 20;

const MIB: u64 = 1 << 20;

/// The value for these GPUs and their limits in bytes; `None` if none is limited. Each GPU that is
/// not seen by the program must be left out: one such entry, and MPS drops all of them.
#[must_use]
pub fn value<'a>(limits: impl IntoIterator<Item = (&'a Gpu, u64)>) -> Option<String> {
    let entries: Vec<String> = limits
        .into_iter()
        .filter_map(|(gpu, bytes)| Some(format!("{}={}", gpu.uuid, limit(gpu, bytes)?)))
        .collect();
    (!entries.is_empty()).then(|| entries.join(","))
}

/// The fence behind a limit in bytes, as MPS wants it; `None` if the whole GPU is allowed.
#[must_use]
pub fn limit(gpu: &Gpu, bytes: u64) -> Option<String> {
    limit_mib(gpu, bytes).map(|mib| format!("{mib}M"))
}

fn limit_mib(gpu: &Gpu, bytes: u64) -> Option<u64> {
    let fence = bytes.saturating_add(SLACK);
    (fence < gpu.total).then(|| fence.div_ceil(MIB))
}

/// The fence behind several limits where one amount is for all GPUs, MiB; `None` if one of them is allowed as a whole.
#[must_use]
pub fn largest<'a>(limits: impl IntoIterator<Item = (&'a Gpu, u64)>) -> Option<u64> {
    let each: Option<Vec<u64>> = limits.into_iter().map(|(gpu, bytes)| limit_mib(gpu, bytes)).collect();
    each?.into_iter().max()
}

/// Devices that a value names, by number among those that the program sees or by UUID.
///
/// # Errors
/// The part that MPS does not understand.
pub fn devices(value: &str) -> Result<Vec<&str>, &str> {
    value
        .split(',')
        .map(|part| {
            let (device, limit) = part.split_once('=').ok_or(part)?;
            let number = limit.trim().strip_suffix(['G', 'M']).ok_or(part)?;
            number.parse::<u64>().map_err(|_| part)?;
            Ok(device.trim())
        })
        .collect()
}

/// The first device of a value that the program does not see.
#[must_use]
pub fn unseen<'a>(devices: &[&'a str], seen: &[&Gpu]) -> Option<&'a str> {
    let is_seen = |device: &str| match device.parse::<usize>() {
        Ok(number) => number < seen.len(),
        Err(_) => seen.iter().any(|gpu| device.len() > 4 && gpu.uuid.starts_with(device)),
    };
    devices.iter().find(|device| !is_seen(device)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(uuid: &str) -> Gpu {
        Gpu { uuid: uuid.into(), total: 80 << 30, ..Gpu::default() }
    }

    #[test]
    fn the_fence_stands_behind_the_quota_and_never_before_it() {
        let (a, b) = (gpu("GPU-a"), gpu("GPU-b"));
        assert_eq!(value([(&a, (10 << 30) + 1), (&b, 0)]).unwrap(), "GPU-a=10753M,GPU-b=512M");
        assert_eq!(value([(&a, 80 << 30), (&b, u64::MAX)]), None, "the whole GPU needs no fence");
    }

    #[test]
    fn one_fence_for_all_gpus_never_comes_before_the_quota_of_any() {
        let (a, b) = (gpu("GPU-a"), gpu("GPU-b"));
        assert_eq!(largest([(&a, 10 << 30), (&b, 2 << 30)]), Some(10 * 1024 + 512));
        assert_eq!(largest([(&a, 10 << 30), (&b, u64::MAX)]), None);
        assert_eq!(largest([]), None);
    }

    #[test]
    fn entries_for_gpus_that_are_not_seen_are_found() {
        let (a, b) = (gpu("GPU-aaa"), gpu("GPU-bbb"));
        let seen = [&a, &b];
        for (text, expected) in [
            ("0=1G,1=512M", None),
            ("2=1G", Some("2")),
            ("GPU-aaa=1G,GPU-ccc=1G", Some("GPU-ccc")),
            ("GPU-bb=1G", None),
        ] {
            assert_eq!(unseen(&devices(text).unwrap(), &seen), expected, "{text}");
        }
        for text in ["", "1G", "0=1", "0=1GB", "0=xG", "0=1G,"] {
            assert!(devices(text).is_err(), "{text}");
        }
    }
}
