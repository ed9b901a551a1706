//! Device attributes by number (`CUdevice_attribute`).

use radrm_emulator_machine::GpuSpec;

/// Value of an attribute; `None` for a number that the interface does not know.
///
/// Limits of textures and surfaces are those of compute capability 8.0 and later; the machine's
/// description may override any attribute.
pub fn attribute(spec: &GpuSpec, pci: (u32, u32, u32), id: i32) -> Option<i32> {
    if let Some(value) = spec.attributes.get(&id.to_string()) {
        return Some(*value);
    }
    let (major, minor) = spec.capability();
    let int = |v: u64| i32::try_from(v).unwrap_or(i32::MAX);
    let since = |wanted: u32| i32::from(major >= wanted);
    let data_centre_double =
        (major == 6 || major == 7 || major == 8 || major == 9 || major == 10) && minor == 0;
    Some(match id {
        // Threads per block, block and grid dimensions.
        1..=3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65535,
        8 => 48 << 10,
        9 => 64 << 10,
        10 => 32,
        11 => i32::MAX,
        12 => int(spec.registers_per_sm.into()),
        13 => int(u64::from(spec.clock_mhz) * 1000),
        14 | 30 => 512,
        15 | 19 | 31 | 41 | 44 => 1,
        16 => int(spec.sms.into()),
        // Run time limit on kernels, compute mode (default), TCC driver.
        17 | 20 | 35 => 0,
        18 => i32::from(spec.integrated),
        // Textures, surfaces.
        21 | 22 | 56 | 70 => 131_072,
        23 | 57 => 65536,
        24..=26 | 58..=60 => 16384,
        27 | 28 | 42 | 45 | 46 | 49 | 52 | 53 | 55 | 61 | 63 | 64 | 66 | 67 | 73 | 74 | 77 => 32768,
        29 | 43 | 62 | 65 => 2048,
        47 | 48 => 8192,
        51 => 32,
        54 | 68 => 2046,
        69 => 1 << 28,
        71 => 65000,
        72 => 2_097_120,
        32 => i32::from(spec.ecc),
        33 => int(pci.1.into()),
        34 => int(pci.2.into()),
        50 => int(pci.0.into()),
        36 => int(u64::from(spec.memory_clock_mhz) * 1000),
        37 => int(spec.memory_bus_bits.into()),
        38 => int(u64::from(spec.l2_mib) << 20),
        39 => int(spec.max_threads_per_sm.into()),
        // Copy engines.
        40 => 3,
        75 => int(major.into()),
        76 => int(minor.into()),
        // Stream priorities, caching in L1, managed memory.
        78..=80 | 83 => 1,
        81 => int(u64::from(spec.shared_per_sm_kib) << 10),
        82 => int(spec.registers_per_sm.into()),
        84 | 85 => 0,
        86 | 88 | 98 | 100 | 101 => i32::from(spec.integrated),
        87 => {
            if data_centre_double {
                2
            } else {
                32
            }
        }
        // Concurrent managed access, preemption, host pointers, stream memory operations, cooperative
        // launch.
        89..=91 | 95 | 99 => 1,
        92..=94 | 122 | 123 => 1,
        96 => 0,
        97 => int(u64::from(spec.shared_per_block_optin_kib) << 10),
        // Virtual memory management, file descriptors as handles, RDMA with it.
        102 | 103 | 110 | 113 | 116 => 1,
        104 | 105 => 0,
        106 => int(spec.max_blocks_per_sm.into()),
        107 => since(8),
        108 => int((u64::from(spec.l2_mib) << 20) * 5 / 8) * since(8),
        109 => (128 << 20) * since(8),
        111 => 1024 * since(8),
        115 => i32::from(spec.memory_pools),
        117 => 1,
        118 => 100,
        119 => i32::from(spec.memory_pools),
        120 | 127 => since(9),
        125 | 129 => 1,
        126 => {
            if major >= 9 {
                4
            } else {
                1
            }
        }
        131 => -1,
        139 => spec.pci_device_id.cast_signed(),
        // Known, and absent here: sparse and deferred arrays, timeline semaphores, dma-buf, fabric
        // handles, NUMA, multicast, MPS, decompression, graphics interoperation.
        112 | 114 | 121 | 124 | 128 | 130 | 132..=138 | 140..=160 => 0,
        _ => return None,
    })
}
