//! Device memory: what is charged, what fails, what comes back, what copies do.

mod common;

use std::ffi::c_void;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use common::{Cuda, alloc, begin, free, isolated, memory, role, start};
use radrm_emulator_machine::{Charge, Kind, KindLedger, Machine, MachineSpec};

const MIB: u64 = 1 << 20;
const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;

/// A machine in a file, and the environment that names it.
struct Shared {
    _folder: tempfile::TempDir,
    path: String,
    machine: Machine,
}

fn shared(text: &str) -> Shared {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("machine");
    let machine = Machine::create(&MachineSpec::parse(text).unwrap(), &path).unwrap();
    Shared { path: path.to_str().unwrap().to_owned(), _folder: folder, machine }
}

/// This process's page of a kind on a GPU.
fn page(kind: impl Into<Charge>, gpu: usize) -> KindLedger {
    let machine = Machine::open(Path::new(&std::env::var("RADRM_EMULATED_MACHINE").unwrap())).unwrap();
    let ledgers = machine.ledgers();
    let mine = ledgers.iter().rfind(|b| b.pid == std::process::id()).unwrap();
    mine.gpu(gpu).map(|g| g.kind(kind)).unwrap_or_default()
}

fn with_machine(test: &str, text: &str, more: &[(&str, &str)], body: impl FnOnce(Cuda)) {
    if role().is_some() {
        return isolated(test, &[], body);
    }
    let shared = shared(text);
    let mut environment = vec![("RADRM_EMULATED_MACHINE", shared.path.as_str())];
    environment.extend(more);
    isolated(test, &environment, body);
    let left = shared.machine.memory(0);
    assert_eq!(left.free, left.total, "what a process held comes back with its end");
}

#[test]
fn requests_are_booked_as_asked_and_held_in_granules() {
    with_machine("requests_are_booked_as_asked_and_held_in_granules", "A100", &[], |cuda| {
        begin(cuda, 0);
        let (before, total) = memory(cuda);
        assert_eq!(total, 40960 * MIB);
        assert_eq!(total - before, page(Charge::Context, 0).held_now);
        let small = alloc(cuda, 1).unwrap();
        let other = alloc(cuda, 1000).unwrap();
        assert_eq!(memory(cuda).0, before - 2 * MIB, "small blocks share a chunk");
        assert_eq!((page(Kind::Device, 0).requested_now, small % 512, other % 512), (1001, 0, 0));
        let large = alloc(cuda, 3 * MIB as usize + 1).unwrap();
        assert_eq!((large % (2 * MIB), memory(cuda).0), (0, before - 6 * MIB));
        assert_eq!(free(cuda, other + 512), INVALID_VALUE, "not the beginning of a block");
        for address in [small, other, large] {
            assert_eq!(free(cuda, address), 0);
            assert_eq!(free(cuda, address), INVALID_VALUE, "freed twice");
        }
        assert_eq!(memory(cuda).0, before);
        let page = page(Kind::Device, 0);
        assert_eq!((page.requested_now, page.held_now, page.allocations, page.frees), (0, 0, 3, 3));
        assert_eq!((page.requested_peak, page.held_peak), (3 * MIB + 1002, 6 * MIB));
        assert_eq!(alloc(cuda, 0), Err(INVALID_VALUE));
        assert_eq!(alloc(cuda, usize::MAX), Err(OUT_OF_MEMORY));
        let (mut address, mut pitch) = (0u64, 0usize);
        let code = call!(cuda, "cuMemAllocPitch_v2"(&mut address => *mut u64, &mut pitch => *mut usize,
            513usize => usize, 10usize => usize, 4 => u32));
        assert_eq!((code, pitch), (0, 1024));
        let (mut base, mut size) = (0u64, 0usize);
        assert_eq!(
            call!(cuda, "cuMemGetAddressRange_v2"(&mut base => *mut u64, &mut size => *mut usize, address + 5000 => u64)),
            0
        );
        assert_eq!((base, size), (address, 10240));
        assert_eq!(
            call!(cuda, "cuMemGetInfo_v2"(std::ptr::null_mut() => *mut usize, &mut size => *mut usize)),
            0
        );
    });
}

#[test]
fn a_full_device_refuses_and_recovers() {
    with_machine("a_full_device_refuses_and_recovers", "T4", &[], |cuda| {
        begin(cuda, 0);
        let mut blocks = Vec::new();
        let code = loop {
            match alloc(cuda, 1 << 30) {
                Ok(address) => blocks.push(address),
                Err(code) => break code,
            }
        };
        assert_eq!((code, blocks.len()), (OUT_OF_MEMORY, 14));
        let free_now = memory(cuda).0;
        assert!(alloc(cuda, free_now as usize + 1).is_err());
        let last = alloc(cuda, free_now as usize).unwrap();
        assert_eq!(memory(cuda).0, 0);
        free(cuda, last);
        assert_eq!(free(cuda, blocks[3]), 0);
        assert!(alloc(cuda, 1 << 30).is_ok());
        let machine = Machine::open(Path::new(&std::env::var("RADRM_EMULATED_MACHINE").unwrap())).unwrap();
        assert_eq!(machine.ledgers()[0].gpu(0).unwrap().failed, 2);
    });
}

#[test]
fn memory_is_shared_by_processes_and_comes_back_after_sigkill() {
    let test = "memory_is_shared_by_processes_and_comes_back_after_sigkill";
    with_machine(test, "T4", &[], |cuda| {
        begin(cuda, 0);
        if role().as_deref() == Some("holder") {
            alloc(cuda, 8 << 30).unwrap();
            println!("held");
            std::thread::sleep(std::time::Duration::from_secs(60));
            return;
        }
        let free_before = memory(cuda).0;
        let mut child = start(
            test,
            "holder",
            &[("RADRM_EMULATED_MACHINE", &std::env::var("RADRM_EMULATED_MACHINE").unwrap())],
        );
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|l| l.unwrap().contains("held")));
        let context = page(Charge::Context, 0).held_now;
        assert_eq!(memory(cuda).0, free_before - (8 << 30) - context);
        assert_eq!(alloc(cuda, 8 << 30), Err(OUT_OF_MEMORY));
        child.kill().unwrap();
        // Not waited for: the zombie must not count.
        while memory(cuda).0 != free_before {
            std::thread::yield_now();
        }
        assert!(alloc(cuda, 8 << 30).is_ok());
        child.wait().unwrap();
    });
}

#[test]
fn faults_strike_where_they_are_planned() {
    let faults = [("RADRM_EMULATOR_FAULTS", "oom@2,oom-after=1GiB,fragment=600MiB")];
    with_machine("faults_strike_where_they_are_planned", "T4", &faults, |cuda| {
        begin(cuda, 0);
        assert!(alloc(cuda, 512).is_ok());
        assert_eq!(alloc(cuda, 512), Err(OUT_OF_MEMORY), "the second");
        assert_eq!(alloc(cuda, 601 << 20), Err(OUT_OF_MEMORY), "larger than any free piece");
        assert!(alloc(cuda, 600 << 20).is_ok());
        assert_eq!(alloc(cuda, 300 << 20), Err(OUT_OF_MEMORY), "above the limit, context included");
    });
}

fn pool_attribute(cuda: Cuda, pool: *mut c_void, attribute: u32) -> u64 {
    let mut value = 0u64;
    let code =
        call!(cuda, "cuMemPoolGetAttribute"(pool => *mut c_void, attribute => u32, &mut value => *mut u64));
    assert_eq!(code, 0);
    value
}

#[test]
fn pools_grow_reuse_and_give_back_at_synchronisation() {
    with_machine("pools_grow_reuse_and_give_back_at_synchronisation", "A100", &[], |cuda| {
        begin(cuda, 0);
        let mut pool: *mut c_void = std::ptr::null_mut();
        assert_eq!(call!(cuda, "cuDeviceGetDefaultMemPool"(&mut pool => *mut *mut c_void, 0 => i32)), 0);
        let take = |bytes: usize| {
            let mut address = 0u64;
            let code = call!(cuda, "cuMemAllocAsync"(&mut address => *mut u64, bytes => usize, std::ptr::null_mut() => *mut c_void));
            (code, address)
        };
        let give =
            |address: u64| call!(cuda, "cuMemFreeAsync"(address => u64, std::ptr::null_mut() => *mut c_void));
        let (reserved, used) = (|| pool_attribute(cuda, pool, 5), || pool_attribute(cuda, pool, 7));
        let a = take(1000).1;
        assert_eq!((reserved(), used()), (32 * MIB, 1024));
        assert_eq!(
            (page(Kind::PoolReserved, 0).held_now, page(Kind::PoolUsed, 0).requested_now),
            (32 * MIB, 1000)
        );
        let b = take(33 << 20).1;
        assert_eq!(reserved(), 96 * MIB);
        assert_eq!((give(b), give(a)), (0, 0));
        assert_eq!((reserved(), used()), (96 * MIB, 0), "nothing goes back before a synchronisation");
        assert_eq!(take(33 << 20).1, b, "reused");
        assert_eq!(call!(cuda, "cuCtxSynchronize"()), 0);
        assert_eq!(reserved(), 64 * MIB, "the empty chunk went back");
        let threshold = u64::MAX;
        let code =
            call!(cuda, "cuMemPoolSetAttribute"(pool => *mut c_void, 4 => u32, &threshold => *const u64));
        assert_eq!(code, 0);
        assert_eq!(free(cuda, b), 0, "cuMemFree of an asynchronous block");
        assert_eq!(call!(cuda, "cuCtxSynchronize"()), 0);
        assert_eq!(reserved(), 64 * MIB, "kept by the threshold");
        assert_eq!(call!(cuda, "cuMemPoolTrimTo"(pool => *mut c_void, 0usize => usize)), 0);
        assert_eq!((reserved(), pool_attribute(cuda, pool, 6)), (0, 96 * MIB));
        let plain = alloc(cuda, 4 << 20).unwrap();
        assert_eq!(give(plain), 0, "cuMemFreeAsync of a plain block");
        assert_eq!(page(Kind::Device, 0).held_now, 0);
        assert_eq!(take(50 << 30).0, OUT_OF_MEMORY);
        assert_eq!(call!(cuda, "cuMemPoolDestroy"(pool => *mut c_void)), INVALID_VALUE);
    });
}

/// `CUmemAllocationProp` of a device: pinned, no handle types, location.
fn prop(device: i32) -> [u64; 4] {
    [1, 1 | (device as u64) << 32, 0, 0]
}

#[test]
fn physical_memory_lives_as_long_as_a_handle_or_a_mapping() {
    with_machine("physical_memory_lives_as_long_as_a_handle_or_a_mapping", "2xA100", &[], |cuda| {
        begin(cuda, 0);
        let size = 4 << 20usize;
        let (mut handle, mut address) = (0u64, 0u64);
        let create = |handle: &mut u64, size: usize, device: i32| call!(cuda, "cuMemCreate"(handle => *mut u64, size => usize, &prop(device) => *const [u64; 4], 0 => u64));
        assert_eq!(create(&mut handle, 1000, 0), INVALID_VALUE, "not a multiple of the granularity");
        assert_eq!(create(&mut handle, size, 1), 0, "a device that is not current");
        assert_eq!(page(Kind::Vmm, 1).held_now, size as u64);
        let reserve = 45usize << 30;
        let code = call!(cuda, "cuMemAddressReserve"(&mut address => *mut u64, reserve => usize, 0usize => usize, 0 => u64, 0 => u64));
        assert_eq!(code, 0, "more address space than memory");
        let map = |at: u64, size: usize, handle: u64| call!(cuda, "cuMemMap"(at => u64, size => usize, 0usize => usize, handle => u64, 0 => u64));
        assert_eq!(map(address, size, handle), 0);
        assert_eq!(map(address + size as u64, size, handle), 0, "a second mapping");
        assert_eq!(map(address, size, handle), INVALID_VALUE, "mapped already");
        let set = |size: usize| call!(cuda, "cuMemsetD8_v2"(address => u64, 1 => u8, size => usize));
        assert_eq!(set(size), INVALID_VALUE, "no rights yet");
        let desc = [1u32, 1, 3];
        let code = call!(cuda, "cuMemSetAccess"(address => u64, 2 * size => usize, &desc => *const [u32; 3], 1usize => usize));
        assert_eq!(code, 0);
        assert_eq!(set(2 * size), 0, "over both mappings");
        assert_eq!(set(2 * size + 1), INVALID_VALUE);
        let mut again = 0u64;
        assert_eq!(call!(cuda, "cuMemRetainAllocationHandle"(&mut again => *mut u64, address + 5 => u64)), 0);
        assert_eq!(again, handle);
        let release = || call!(cuda, "cuMemRelease"(handle => u64));
        assert_eq!((release(), release(), release()), (0, 0, INVALID_VALUE));
        assert_eq!(page(Kind::Vmm, 1).held_now, size as u64, "still mapped");
        let unmap = |at: u64, size: usize| call!(cuda, "cuMemUnmap"(at => u64, size => usize));
        assert_eq!(unmap(address, size / 2), INVALID_VALUE, "not a whole mapping");
        assert_eq!(
            call!(cuda, "cuMemAddressFree"(address => u64, reserve => usize)),
            INVALID_VALUE,
            "still mapped"
        );
        assert_eq!(unmap(address, 2 * size), 0);
        assert_eq!(page(Kind::Vmm, 1).held_now, 0);
        assert_eq!(call!(cuda, "cuMemAddressFree"(address => u64, reserve => usize)), 0);
    });
}

#[test]
fn untouched_memory_reads_as_zeros_and_wrong_pointers_are_refused() {
    with_machine("untouched_memory_reads_as_zeros_and_wrong_pointers_are_refused", "A100", &[], |cuda| {
        begin(cuda, 0);
        let address = alloc(cuda, 4096).unwrap();
        let mut host = [7u8; 4096];
        let up = |at: u64, host: &[u8], n: usize| call!(cuda, "cuMemcpyHtoD_v2"(at => u64, host.as_ptr() => *const u8, n => usize));
        assert_eq!(up(address, &host, 4096), 0);
        assert_eq!(
            call!(cuda, "cuMemcpyDtoH_v2"(host.as_mut_ptr() => *mut u8, address => u64, 4096usize => usize)),
            0
        );
        assert_eq!(host, [0; 4096]);
        assert_eq!(up(address + 1, &host, 4096), INVALID_VALUE, "over the end");
        assert_eq!(up(0x1000, &host, 1), INVALID_VALUE);
        assert_eq!(up(host.as_ptr() as u64, &host, 1), INVALID_VALUE, "host memory is not a device memory");
        free(cuda, address);
        assert_eq!(up(address, &host, 1), INVALID_VALUE, "freed");
    });
}

#[test]
fn backed_memory_keeps_what_is_copied_to_it() {
    let backed = [("RADRM_EMULATOR_BACKED", "1")];
    with_machine("backed_memory_keeps_what_is_copied_to_it", "A100", &backed, |cuda| {
        begin(cuda, 0);
        let (a, b) = (alloc(cuda, 1 << 16).unwrap(), alloc(cuda, 1 << 16).unwrap());
        let host: Vec<u8> = (0..1 << 16).map(|i| (i * 7 % 251) as u8).collect();
        let mut back = vec![0u8; 1 << 16];
        assert_eq!(
            call!(cuda, "cuMemcpyHtoD_v2"(a => u64, host.as_ptr() => *const u8, 1usize << 16 => usize)),
            0
        );
        assert_eq!(call!(cuda, "cuMemcpyDtoD_v2"(b => u64, a => u64, 1usize << 16 => usize)), 0);
        assert_eq!(call!(cuda, "cuMemcpy"(back.as_mut_ptr() => *mut u8, b => u64, 1usize << 16 => usize)), 0);
        assert_eq!(back, host);
        // Rows 16 bytes wide, 256 apart on the device, 20 on the host, two elements in and three down.
        let copy = radrm_cuda_abi::CUDA_MEMCPY2D {
            srcXInBytes: 2,
            srcY: 3,
            srcMemoryType: 2,
            srcHost: std::ptr::null(),
            srcDevice: a,
            srcArray: radrm_cuda_abi::CUarray::NULL,
            srcPitch: 256,
            dstXInBytes: 1,
            dstY: 0,
            dstMemoryType: 1,
            dstHost: back.as_mut_ptr().cast(),
            dstDevice: 0,
            dstArray: radrm_cuda_abi::CUarray::NULL,
            dstPitch: 20,
            WidthInBytes: 16,
            Height: 5,
        };
        back.fill(0);
        assert_eq!(call!(cuda, "cuMemcpy2D_v2"(&copy => *const radrm_cuda_abi::CUDA_MEMCPY2D)), 0);
        for row in 0..5 {
            assert_eq!(
                back[row * 20 + 1..row * 20 + 17],
                host[(row + 3) * 256 + 2..(row + 3) * 256 + 18],
                "row {row}"
            );
            assert_eq!((back[row * 20], back[row * 20 + 17]), (0, 0));
        }
        let high = radrm_cuda_abi::CUDA_MEMCPY2D { Height: 254, ..copy };
        assert_eq!(
            call!(cuda, "cuMemcpy2D_v2"(&high => *const radrm_cuda_abi::CUDA_MEMCPY2D)),
            INVALID_VALUE
        );
        assert_eq!(call!(cuda, "cuMemsetD32_v2"(a => u64, 0x01020304u32 => u32, 4usize => usize)), 0);
        assert_eq!(
            call!(cuda, "cuMemsetD2D16_v2"(a + 256 => u64, 64usize => usize, 0xabcd => u16, 3usize => usize, 2usize => usize)),
            0
        );
        assert_eq!(
            call!(cuda, "cuMemcpyDtoH_v2"(back.as_mut_ptr() => *mut u8, a => u64, 1usize << 16 => usize)),
            0
        );
        assert_eq!(back[..17], [4, 3, 2, 1, 4, 3, 2, 1, 4, 3, 2, 1, 4, 3, 2, 1, host[16]]);
        assert_eq!(back[256 + 64..256 + 71], [0xcd, 0xab, 0xcd, 0xab, 0xcd, 0xab, host[256 + 70]]);
        assert_eq!(
            call!(cuda, "cuMemsetD32_v2"(a + 2 => u64, 0 => u32, 1usize => usize)),
            INVALID_VALUE,
            "not aligned"
        );
    });
}

#[test]
fn arrays_are_charged_by_their_shape() {
    let backed = [("RADRM_EMULATOR_BACKED", "1")];
    with_machine("arrays_are_charged_by_their_shape", "A100", &backed, |cuda| {
        begin(cuda, 0);
        use radrm_cuda_abi::{CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR};
        let float4 = CUDA_ARRAY_DESCRIPTOR { Width: 100, Height: 50, Format: 0x20, NumChannels: 4 };
        let mut array: *mut c_void = std::ptr::null_mut();
        let make = |array: &mut *mut c_void, desc: &CUDA_ARRAY_DESCRIPTOR| call!(cuda, "cuArrayCreate_v2"(array => *mut *mut c_void, desc => *const CUDA_ARRAY_DESCRIPTOR));
        assert_eq!(make(&mut array, &CUDA_ARRAY_DESCRIPTOR { NumChannels: 3, ..float4 }), INVALID_VALUE);
        assert_eq!(make(&mut array, &float4), 0);
        assert_eq!(
            (page(Kind::Array, 0).requested_now, page(Kind::Array, 0).held_now),
            (100 * 50 * 16, 2 * MIB)
        );
        let host: Vec<u8> = (0..80_000u32).map(|i| i as u8).collect();
        let mut back = vec![0u8; 80_000];
        let whole = 80_000usize;
        assert_eq!(
            call!(cuda, "cuMemcpyHtoA_v2"(array => *mut c_void, 0usize => usize, host.as_ptr() => *const u8, whole => usize)),
            0
        );
        assert_eq!(
            call!(cuda, "cuMemcpyAtoH_v2"(back.as_mut_ptr() => *mut u8, array => *mut c_void, 0usize => usize, whole => usize)),
            0
        );
        assert_eq!(back, host);
        assert_eq!(
            call!(cuda, "cuMemcpyAtoH_v2"(back.as_mut_ptr() => *mut u8, array => *mut c_void, 1usize => usize, whole => usize)),
            INVALID_VALUE
        );
        assert_eq!(call!(cuda, "cuArrayDestroy"(array => *mut c_void)), 0);
        assert_eq!(call!(cuda, "cuArrayDestroy"(array => *mut c_void)), 400);
        let mip =
            CUDA_ARRAY3D_DESCRIPTOR { Width: 8, Height: 4, Depth: 0, Format: 1, NumChannels: 1, Flags: 0 };
        let mut mipmap: *mut c_void = std::ptr::null_mut();
        let code = call!(cuda, "cuMipmappedArrayCreate"(&mut mipmap => *mut *mut c_void, &mip => *const CUDA_ARRAY3D_DESCRIPTOR, 99 => u32));
        assert_eq!((code, page(Kind::Array, 0).requested_now), (0, 32 + 8 + 2 + 1));
        let mut level: *mut c_void = std::ptr::null_mut();
        let get = |level: &mut *mut c_void, n: u32| call!(cuda, "cuMipmappedArrayGetLevel"(level => *mut *mut c_void, mipmap => *mut c_void, n => u32));
        assert_eq!((get(&mut level, 3), call!(cuda, "cuArrayDestroy"(level => *mut c_void))), (0, 400));
        assert_eq!(get(&mut level, 4), INVALID_VALUE);
        assert_eq!(call!(cuda, "cuMipmappedArrayDestroy"(mipmap => *mut c_void)), 0);
        assert_eq!(page(Kind::Array, 0).held_now, 0);
    });
}

#[test]
fn host_and_managed_memory_are_real_and_not_charged() {
    with_machine("host_and_managed_memory_are_real_and_not_charged", "A100", &[], |cuda| {
        begin(cuda, 0);
        let before = memory(cuda).0;
        let (mut host, mut managed) = (0u64, 0u64);
        assert_eq!(call!(cuda, "cuMemHostAlloc"(&mut host => *mut u64, 5000usize => usize, 0 => u32)), 0);
        assert_eq!(
            call!(cuda, "cuMemAllocManaged"(&mut managed => *mut u64, 7000usize => usize, 1 => u32)),
            0
        );
        assert_eq!(memory(cuda).0, before);
        assert_eq!(
            (page(Kind::PinnedHost, 0).requested_now, page(Kind::Managed, 0).requested_now),
            (5000, 7000)
        );
        // SAFETY: 5000 bytes that were just allocated.
        unsafe { std::slice::from_raw_parts_mut(host as *mut u8, 5000) }.fill(9);
        assert_eq!(call!(cuda, "cuMemcpy"(managed => u64, host => u64, 5000usize => usize)), 0);
        // SAFETY: 7000 bytes that were just allocated.
        let bytes = unsafe { std::slice::from_raw_parts(managed as *const u8, 7000) };
        assert_eq!(bytes[4998..5002], [9, 9, 0, 0]);
        let (mut kind, mut is_managed) = (0u32, 0u8);
        let attribute = |out: *mut c_void, id: u32, at: u64| call!(cuda, "cuPointerGetAttribute"(out => *mut c_void, id => u32, at => u64));
        assert_eq!(attribute((&raw mut kind).cast(), 2, host + 100), 0);
        assert_eq!(kind, 1);
        assert_eq!(attribute((&raw mut is_managed).cast(), 8, managed), 0);
        assert_eq!(is_managed, 1);
        let own = vec![0u8; 8192];
        assert_eq!(attribute((&raw mut kind).cast(), 2, own.as_ptr() as u64), INVALID_VALUE);
        let register =
            || call!(cuda, "cuMemHostRegister_v2"(own.as_ptr() => *const u8, 8192usize => usize, 0 => u32));
        assert_eq!((register(), register()), (0, 712));
        assert_eq!(page(Kind::PinnedHost, 0).requested_now, 13192);
        let unregister = || call!(cuda, "cuMemHostUnregister"(own.as_ptr() => *const u8));
        assert_eq!((unregister(), unregister()), (0, 713));
        assert_eq!(call!(cuda, "cuMemFreeHost"(host => u64)), 0);
        assert_eq!(free(cuda, managed), 0);
        assert_eq!((page(Kind::PinnedHost, 0).requested_now, page(Kind::Managed, 0).requested_now), (0, 0));
    });
}

#[test]
fn a_context_takes_its_memory_along() {
    with_machine("a_context_takes_its_memory_along", "2xT4", &[], |cuda| {
        assert_eq!(call!(cuda, "cuInit"(0 => u32)), 0);
        let mut context: *mut c_void = std::ptr::null_mut();
        assert_eq!(call!(cuda, "cuCtxCreate_v2"(&mut context => *mut *mut c_void, 0 => u32, 1 => i32)), 0);
        alloc(cuda, 5 << 20).unwrap();
        let mut address = 0u64;
        let null = std::ptr::null_mut::<c_void>();
        assert_eq!(
            call!(cuda, "cuMemAllocAsync"(&mut address => *mut u64, 5usize << 20 => usize, null => *mut c_void)),
            0
        );
        assert_eq!(
            (page(Kind::Device, 1).requested_now, page(Kind::PoolReserved, 1).held_now),
            (5 * MIB, 32 * MIB)
        );
        assert_eq!(call!(cuda, "cuCtxDestroy_v2"(context => *mut c_void)), 0);
        let kinds = [Kind::Device, Kind::PoolReserved, Kind::PoolUsed].map(Charge::from);
        for kind in kinds.into_iter().chain([Charge::Context]) {
            assert_eq!((page(kind, 1).requested_now, page(kind, 1).held_now), (0, 0), "{kind:?}");
        }
        assert_eq!(alloc(cuda, 1), Err(201), "no context is current");
        let mut free = 0usize;
        assert_eq!(call!(cuda, "cuMemGetInfo_v2"(&mut free => *mut usize, &mut free => *mut usize)), 201);
    });
}

#[test]
fn memory_opens_in_another_process_and_is_charged_once() {
    let test = "memory_opens_in_another_process_and_is_charged_once";
    with_machine(test, "A100", &[], |cuda| {
        begin(cuda, 0);
        let open = |out: &mut u64, handle: [u8; 64]| call!(cuda, "cuIpcOpenMemHandle_v2"(out => *mut u64, handle => [u8; 64], 1 => u32));
        if role().as_deref() == Some("opener") {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
            let bytes: Vec<u8> = line.trim().split(',').map(|n| n.parse().unwrap()).collect();
            let handle: [u8; 64] = bytes.try_into().unwrap();
            let before = memory(cuda).0;
            let (mut address, mut again) = (0u64, 0u64);
            assert_eq!((open(&mut address, handle), open(&mut again, handle)), (0, 0));
            assert_eq!((address, memory(cuda).0), (again, before));
            assert_eq!(
                (page(Kind::Imported, 0).requested_now, page(Kind::Device, 0).requested_now),
                (10 * MIB, 0)
            );
            assert_eq!(call!(cuda, "cuMemsetD8_v2"(address => u64, 0 => u8, 10usize << 20 => usize)), 0);
            let close = || call!(cuda, "cuIpcCloseMemHandle"(address => u64));
            assert_eq!((close(), close(), close()), (0, 0, INVALID_VALUE));
            assert_eq!(page(Kind::Imported, 0).requested_now, 0);
            return;
        }
        let address = alloc(cuda, 10 << 20).unwrap();
        let mut handle = [0u8; 64];
        assert_eq!(call!(cuda, "cuIpcGetMemHandle"(&mut handle => *mut [u8; 64], address => u64)), 0);
        let mut own = 0;
        assert_eq!(open(&mut own, handle), 201, "not in the process that made it");
        let path = std::env::var("RADRM_EMULATED_MACHINE").unwrap();
        let mut child = start(test, "opener", &[("RADRM_EMULATED_MACHINE", &path)]);
        let text: Vec<String> = handle.iter().map(u8::to_string).collect();
        writeln!(child.stdin.take().unwrap(), "{}", text.join(",")).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        free(cuda, address);
        assert_eq!(open(&mut own, handle), INVALID_VALUE, "freed");
    });
}

#[test]
fn physical_memory_and_pools_are_handed_on_by_file() {
    let test = "physical_memory_and_pools_are_handed_on_by_file";
    with_machine(test, "A100", &[], |cuda| {
        begin(cuda, 0);
        let import = |out: &mut u64, fd: i32| call!(cuda, "cuMemImportFromShareableHandle"(out => *mut u64, fd as usize => usize, 1 => u32));
        if role().as_deref() == Some("importer") {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
            let files: Vec<std::fs::File> =
                line.split_whitespace().map(|path| std::fs::File::open(path).unwrap()).collect();
            let fds: Vec<i32> = files.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
            let (mut handle, mut pool) = (0u64, std::ptr::null_mut::<c_void>());
            let before = memory(cuda).0;
            assert_eq!(import(&mut handle, fds[0]), 0);
            assert_eq!((page(Kind::Imported, 0).requested_now, memory(cuda).0), (2 * MIB, before));
            assert_eq!(call!(cuda, "cuMemRelease"(handle => u64)), 0);
            assert_eq!(page(Kind::Imported, 0).requested_now, 0);
            let code = call!(cuda, "cuMemPoolImportFromShareableHandle"(
                &mut pool => *mut *mut c_void, fds[1] as usize => usize, 1 => u32, 0 => u64));
            assert_eq!(
                (code, import(&mut handle, fds[1])),
                (0, INVALID_VALUE),
                "a pool is no physical memory"
            );
            let (mut address, null) = (0u64, std::ptr::null_mut::<c_void>());
            let code = call!(cuda, "cuMemAllocFromPoolAsync"(
                &mut address => *mut u64, 512usize => usize, pool => *mut c_void, null => *mut c_void));
            assert_eq!(code, 800, "nothing is allocated from another process's pool");
            return;
        }
        let exportable = [1 | 1 << 32, 1, 0, 0u64];
        let (mut handle, mut own, mut fd, mut pool_fd) = (0u64, 0u64, -1, -1);
        let code = call!(cuda, "cuMemCreate"(
            &mut handle => *mut u64, 2usize << 20 => usize, &exportable => *const [u64; 4], 0 => u64));
        assert_eq!(code, 0);
        let code = call!(cuda, "cuMemExportToShareableHandle"(&mut fd => *mut i32, handle => u64, 1 => u32, 0 => u64));
        assert_eq!((code, import(&mut own, fd), own), (0, 0, handle), "one's own memory is the same memory");
        let mut props = [0u64; 11];
        props[..2].copy_from_slice(&[1 | 1 << 32, 1]);
        let mut pool = std::ptr::null_mut::<c_void>();
        assert_eq!(
            call!(cuda, "cuMemPoolCreate"(&mut pool => *mut *mut c_void, &props => *const [u64; 11])),
            0
        );
        let code = call!(cuda, "cuMemPoolExportToShareableHandle"(
            &mut pool_fd => *mut i32, pool => *mut c_void, 1 => u32, 0 => u64));
        assert_eq!(code, 0);
        let path = std::env::var("RADRM_EMULATED_MACHINE").unwrap();
        let mut child = start(test, "importer", &[("RADRM_EMULATED_MACHINE", &path)]);
        let me = std::process::id();
        writeln!(child.stdin.take().unwrap(), "/proc/{me}/fd/{fd} /proc/{me}/fd/{pool_fd}").unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    });
}

#[test]
fn little_address_space_is_enough() {
    with_machine("little_address_space_is_enough", "A100", &[], |cuda| {
        let limit = libc::rlimit { rlim_cur: 16 << 30, rlim_max: 16 << 30 };
        // SAFETY: sets a limit of this process.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
        begin(cuda, 0);
        let address = alloc(cuda, 3 << 30).unwrap();
        assert_eq!(free(cuda, address), 0);
        assert_eq!(alloc(cuda, 30 << 30), Err(OUT_OF_MEMORY), "no addresses, although there is memory");
        assert_eq!(page(Kind::Device, 0).held_now, 0);
    });
}

#[test]
fn threads_share_a_context() {
    with_machine("threads_share_a_context", "A100", &[], |cuda| {
        let context = begin(cuda, 0) as usize;
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                scope.spawn(move || {
                    assert_eq!(alloc(cuda, 512), Err(201), "a new thread has no context");
                    assert_eq!(call!(cuda, "cuCtxSetCurrent"(context => usize)), 0);
                    for round in 0..2000 {
                        let blocks: Vec<u64> =
                            (1..5).map(|n| alloc(cuda, n * 700 + thread + round).unwrap()).collect();
                        blocks.into_iter().for_each(|address| assert_eq!(free(cuda, address), 0));
                    }
                });
            }
        });
        let page = page(Kind::Device, 0);
        assert_eq!((page.requested_now, page.held_now, page.allocations), (0, 0, 32_000));
    });
}

#[test]
fn figures_hold_for_random_sequences() {
    with_machine("figures_hold_for_random_sequences", "A100", &[], |cuda| {
        begin(cuda, 0);
        let before = memory(cuda).0;
        let mut seed = 99u64;
        let mut live: Vec<(u64, u64)> = Vec::new();
        let (mut now, mut peak) = (0, 0);
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if seed >> 63 == 0 || live.is_empty() {
                let bytes = 1 + (seed >> 40) % if seed & 7 == 0 { 4 << 20 } else { 5000 };
                let address = alloc(cuda, bytes as usize).unwrap();
                live.push((address, bytes));
                now += bytes;
                peak = peak.max(now);
            } else {
                let (address, bytes) = live.swap_remove((seed >> 20) as usize % live.len());
                assert_eq!(free(cuda, address), 0);
                now -= bytes;
            }
        }
        let ledger = page(Kind::Device, 0);
        assert_eq!((ledger.requested_now, ledger.requested_peak), (now, peak));
        assert_eq!(before - memory(cuda).0, ledger.held_now);
        live.sort_unstable();
        assert!(live.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "blocks overlap");
        live.iter().for_each(|(address, _)| assert_eq!(free(cuda, *address), 0));
        assert_eq!((memory(cuda).0, page(Kind::Device, 0).held_now), (before, 0));
    });
}
