//! Cost of the writer's calls, one thread: `cargo run --release -p radrm-telemetry --example costs`.

use radrm_telemetry::*;
use std::ffi::CString;
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

/// Median of nine runs, ns per round.
fn measure(name: &str, rounds: u64, mut round: impl FnMut(u64)) {
    let mut runs: Vec<f64> = (0..9u64)
        .map(|run| {
            let start = Instant::now();
            for n in 0..rounds {
                round(run * rounds + n);
            }
            start.elapsed().as_nanos() as f64 / rounds as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("{name:<58} {:8.2} ns", runs[4]);
}

fn main() {
    let file = SegmentFile::create_unnamed(1).expect("segment");
    let path = CString::new(file.path().as_os_str().as_bytes()).expect("path");
    let start = Instant::now();
    let writer = Writer::join(&path).expect("join");
    println!("{:<58} {:8.1} us", "join", start.elapsed().as_nanos() as f64 / 1000.0);
    let gpu = writer.gpu(&[1; 16], b"GPU", 80 << 30, b"").expect("gpu");
    let kernels: Vec<_> =
        (0..64).map(|n| writer.kernel(format!("k{n}").as_bytes(), &KernelAttributes::default())).collect();
    let lane = writer.lane(1);

    measure("now", 1_000_000, |_| {
        black_box(writer.now());
    });
    measure("lane.launch, one kernel", 10_000_000, |n| lane.launch(&writer, kernels[0], n & 7, 256, 64));
    let row = lane.own_row(&writer, kernels[0]).expect("row");
    measure("row.launch", 10_000_000, |n| row.launch(n & 7, 256, 64));
    measure("lane.launch, 64 kernels in turn", 10_000_000, |n| {
        lane.launch(&writer, kernels[n as usize & 63], n & 7, 256, 64);
    });
    measure("charge + discharge", 1_000_000, |_| {
        writer.charge(gpu, Kind::Device, 4096, 1 << 30);
        writer.discharge(gpu, Kind::Device, 4096, 1 << 30);
    });
    measure("call (counter of an entry point)", 1_000_000, |_| writer.call(5));

    let mut live = 0u64;
    for target in [1u64, 10_000, 1_000_000] {
        let grow = Instant::now();
        let before = live;
        while live < target {
            insert(&writer, gpu, address(live), writer.now());
            live += 1;
        }
        if live > before + 1 {
            println!(
                "{:<58} {:8.2} ns",
                format!("growth to {live} blocks, each"),
                grow.elapsed().as_nanos() as f64 / (live - before) as f64
            );
        }
        measure(&format!("alloc + free, same address, {live} live"), 300_000, |_| {
            pair(&writer, gpu, 0x6666_0000_0000)
        });
        measure(&format!("alloc + free, address after address, {live} live"), 300_000, |n| {
            pair(&writer, gpu, 0x6666_0000_0000 + n * 512);
        });
        measure(&format!("alloc + free, 2 MiB after 2 MiB, {live} live"), 300_000, |n| {
            pair(&writer, gpu, 0x5000_0000_0000 + n * (2 << 20));
        });
        measure(&format!("free + alloc of an old one at random, {live} live"), 300_000, |n| {
            let key = BlockKey::pointer(address(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % live));
            if let Some(block) = writer.blocks().remove(key) {
                writer.discharge(gpu, block.kind, block.bytes, writer.now());
                insert(&writer, gpu, key.value(), writer.now());
            }
        });
    }
    let segment = file.segment().expect("reader");
    let start = Instant::now();
    let slots = segment.slots().expect("slots");
    let process = segment.process(&slots[0]).expect("process");
    println!("{:<58} {:8.1} us", "reader: one process", start.elapsed().as_nanos() as f64 / 1000.0);
    assert!(process.is_some());
    let start = Instant::now();
    let largest = segment.largest_blocks(0, 20).expect("blocks");
    println!(
        "{:<58} {:8.1} us",
        "reader: 20 largest of a million",
        start.elapsed().as_nanos() as f64 / 1000.0
    );
    assert_eq!(largest.len(), 20);
}

fn address(n: u64) -> u64 {
    0x7000_0000_0000 + n * 512
}

fn insert(writer: &Writer, gpu: GpuIndex, address: u64, ns: u64) {
    writer.charge(gpu, Kind::Device, 4096, ns);
    let block = Block { bytes: 4096, kind: Kind::Device, gpu, ns, aux: 1 };
    assert_eq!(writer.blocks().insert(BlockKey::pointer(address), &block), Inserted::New);
}

fn pair(writer: &Writer, gpu: GpuIndex, address: u64) {
    insert(writer, gpu, address, writer.now());
    let block = writer.blocks().remove(BlockKey::pointer(address));
    if let Some(block) = block {
        writer.discharge(gpu, block.kind, block.bytes, writer.now());
    }
}
