//! Numbers of the node's GPUs, by which radrmd names them in reasons, lists and metrics, and the scheduler has them.

use radrm_os::nvml::Gpu;
use radrm_scheduler_core::DeviceId;

/// Number of the GPU at a place of the list: NVML's. MIG instances that have none come after the highest of these, in their order.
pub(crate) fn number(list: &[Gpu], at: usize) -> u32 {
    list[at].index.unwrap_or_else(|| {
        let next =
            list.iter().filter_map(|gpu| gpu.index).max().map_or(0, |highest| highest.saturating_add(1));
        let before = list[..at].iter().filter(|gpu| gpu.index.is_none()).count();
        next.saturating_add(u32::try_from(before).unwrap_or(u32::MAX))
    })
}

/// Number of the GPU with this UUID.
pub(crate) fn number_of(list: &[Gpu], uuid: &str) -> Option<u32> {
    list.iter().position(|gpu| gpu.uuid == uuid).map(|at| number(list, at))
}

/// The scheduler's device at a place of the list.
pub(crate) fn device(list: &[Gpu], at: usize) -> DeviceId {
    DeviceId(number(list, at))
}

/// The GPU of a device.
pub(crate) fn gpu_of(list: &[Gpu], device: DeviceId) -> Option<usize> {
    (0..list.len()).find(|at| number(list, *at) == device.0)
}

/// Returns true if this is the number or the UUID of the GPU at a place of the list.
pub(crate) fn is_named(list: &[Gpu], at: usize, name: &str) -> bool {
    list[at].uuid == name || number(list, at).to_string() == name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_has_a_number_of_its_own_and_nvmls_if_it_has_one() {
        let gpu = |uuid: &str, index| Gpu { index, uuid: uuid.to_owned(), ..Gpu::default() };
        let list = [gpu("A", Some(0)), gpu("MIG-1", None), gpu("MIG-2", None), gpu("B", Some(1))];
        let numbers: Vec<u32> = (0..list.len()).map(|at| number(&list, at)).collect();
        assert_eq!(numbers, [0, 2, 3, 1]);
        for at in 0..list.len() {
            assert_eq!(gpu_of(&list, device(&list, at)), Some(at));
            assert_eq!(number_of(&list, &list[at].uuid), Some(numbers[at]));
            assert!(is_named(&list, at, &numbers[at].to_string()) && is_named(&list, at, &list[at].uuid));
        }
        assert!(!is_named(&list, 1, "1") && gpu_of(&list, DeviceId(4)).is_none());
    }
}
