//! Duration of calls; run by hand: `cargo test -p radrm-emulator-driver --test speed -- --ignored --nocapture`.

mod common;

use std::ffi::c_void;
use std::time::Instant;

use common::begin;

#[test]
#[ignore = "prints figures, decides nothing"]
fn calls_are_timed() {
    common::watchdog();
    let cuda = common::Cuda::open();
    begin(cuda, 0);
    type Alloc = unsafe extern "C" fn(*mut u64, usize) -> u32;
    type Free = unsafe extern "C" fn(u64) -> u32;
    type Info = unsafe extern "C" fn(*mut usize, *mut usize) -> u32;
    // SAFETY: the types are those of the C prototypes.
    let (alloc, free, info): (Alloc, Free, Info) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Alloc>(cuda.symbol("cuMemAlloc_v2")),
            std::mem::transmute::<*mut c_void, Free>(cuda.symbol("cuMemFree_v2")),
            std::mem::transmute::<*mut c_void, Info>(cuda.symbol("cuMemGetInfo_v2")),
        )
    };
    let take = |bytes: usize| {
        let mut address = 0;
        // SAFETY: `address` takes the result.
        assert_eq!(unsafe { alloc(&mut address, bytes) }, 0);
        address
    };
    // SAFETY: any address may be given.
    let give = |address: u64| assert_eq!(unsafe { free(address) }, 0);
    for live in [0usize, 10_000, 1_000_000] {
        let held: Vec<u64> = (0..live).map(|_| take(512)).collect();
        for bytes in [512usize, 4 << 20] {
            let start = Instant::now();
            (0..100_000).for_each(|_| give(take(bytes)));
            println!("{live} live, {bytes} bytes: {} ns per pair", start.elapsed().as_nanos() / 100_000);
        }
        let (start, mut room) = (Instant::now(), 0usize);
        for _ in 0..10_000 {
            // SAFETY: `room` takes both results.
            unsafe { info(&mut room, &mut room) };
        }
        println!("{live} live: cuMemGetInfo {} ns", start.elapsed().as_nanos() / 10_000);
        held.into_iter().for_each(give);
    }
}
