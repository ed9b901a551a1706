//! A writer and a reader of one segment, in one process.

use radrm_telemetry::*;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

fn join(file: &SegmentFile) -> Writer {
    Writer::join(&CString::new(file.path().as_os_str().as_bytes()).unwrap()).unwrap()
}

#[test]
fn what_a_writer_counts_a_reader_sees() {
    let file = SegmentFile::create_unnamed(7).unwrap();
    let segment = Segment::open(file.path()).unwrap();
    assert_eq!(segment.processes().unwrap(), []);
    let writer = join(&file);
    let gpu = writer.gpu(&[1; 16], b"Big GPU", 80 << 30, b"0000:01:00.0").unwrap();
    assert_eq!(writer.gpu(&[1; 16], b"Big GPU", 80 << 30, b""), Some(gpu));
    assert_eq!(writer.gpu(&[2; 16], b"Other", 1, b"").map(GpuIndex::number), Some(1));
    writer.charge(gpu, Kind::Device, 100, writer.now());
    writer.charge(gpu, Kind::Vmm, 50, writer.now());
    writer.charge(gpu, Kind::PinnedHost, 1000, writer.now());
    writer.discharge(gpu, Kind::Device, 60, writer.now());
    writer.discharge(gpu, Kind::Vmm, 51, writer.now());
    let attributes = KernelAttributes { registers: 32, ..Default::default() };
    let kernel = writer.kernel(b"square", &attributes);
    assert_eq!(writer.kernel(b"square", &attributes), kernel);
    assert_ne!(writer.kernel(b"square", &Default::default()), kernel);
    let lane = writer.lane(1);
    lane.launch(&writer, kernel, 4, 1024, 16);
    lane.launch(&writer, kernel, 4, 1024, 16);
    let sum = GraphLaunches { launches: 3, blocks: 30, threads: 300, dynamic_shared: 96 };
    lane.graph_kernel(&writer, kernel, sum);
    lane.graph(&writer);
    let key = BlockKey::pointer(0x7f00_0000_0000);
    let block = Block { bytes: 100, kind: Kind::Device, gpu, ns: 5, aux: 6 };
    assert_eq!(writer.blocks().insert(key, &block), Inserted::New);
    let request = FailedRequest {
        ns: 9,
        gpu,
        kind: Kind::Array,
        entry: 77,
        bytes: 1 << 40,
        free: 3,
        total: 80 << 30,
        result: 2,
        quota: None,
    };
    writer.failed(&request);
    writer.call(77);

    let [process] = &segment.processes().unwrap()[..] else { panic!("one process") };
    assert_eq!(process.slot.pid, Some(std::process::id()));
    assert_eq!(process.slot.liveness, Liveness::Running);
    assert_eq!(process.exe, std::env::current_exe().unwrap().to_str().unwrap());
    assert_eq!(process.cmdline, std::env::args().collect::<Vec<_>>());
    let [account] = &process.accounts[..] else { panic!("one account") };
    assert_eq!(account.total_now, 40);
    assert_eq!(account.peak.total, 150);
    assert!(!account.peak.approximate);
    assert_eq!(account.peak.kinds, [100, 0, 50, 0, 0, 0, 0, 0, 0]);
    assert_eq!(account.kinds[6], KindFigures { now: 1000, peak: 1000, allocs: 1, frees: 0 });
    assert_eq!(account.kinds[2], KindFigures { now: 0, peak: 50, allocs: 1, frees: 1 });
    assert_eq!(process.bypasses, [(Bypass::Underflow, 1)]);
    assert_eq!(process.calls, [(77, 1)]);
    let uses = segment.uses(&process.slot).unwrap();
    assert_eq!((uses.calls.as_slice(), uses.managed, uses.driver_version), (&[(77, 1)][..], false, None));
    writer.charge(gpu, Kind::Managed, 5, writer.now());
    writer.discharge(gpu, Kind::Managed, 5, writer.now());
    writer.driver_version(13_000);
    let uses = segment.uses(&process.slot).unwrap();
    assert!(uses.managed && uses.driver_version == Some(13_000), "what was used is known after its end too");
    assert_eq!((process.launches(), process.graph_launches), (2, 1));
    assert_eq!(process.kernels.len(), 2);
    let square = &process.kernels[0];
    assert_eq!((square.name.as_str(), square.attributes), ("square", attributes));
    assert_eq!((square.blocks, square.threads, square.dynamic_shared_bytes), (8, 2048, 32 + 96));
    assert_eq!((square.graph_launches, square.graph_blocks, square.graph_threads), (3, 30, 300));
    assert_eq!(process.first_failures, [request]);
    assert_eq!(segment.largest_blocks(0, 10).unwrap(), [LiveBlock { key, block }]);
    assert_eq!(segment.gpus().unwrap().len(), 2);
    assert_eq!(segment.gpus().unwrap()[0].pci, "0000:01:00.0");
    let timeline = segment.timeline(0, gpu).unwrap();
    assert_eq!(timeline.iter().map(|point| point.max_total).max(), Some(150));
    assert_eq!(timeline.last().unwrap().last_kinds, [40, 0, 0, 0, 0, 0, 1000, 0]);
    let mut ring = RingReader::new(&process.slot);
    let events = ring.poll(&segment, false);
    assert_eq!(events.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::Joined]);
    assert_eq!(ring.lost(), 0);

    writer.leave(EndReason::Exited);
    // It has said its farewell, but this process lives: what it may still free counts.
    assert_eq!(segment.slot(0).unwrap().liveness, Liveness::Running);
}

#[test]
fn a_published_segment_has_its_limits_and_outlives_its_maker() {
    use radrm_telemetry::ledger::{Amount, LedgerView, Limit, Place};
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let (directory, uuid) = (folder.path().join("claim"), [7; 16]);
    let path = directory.join("segment");
    let limits = [
        Limit { gpu: Some(uuid), amount: Amount::Bytes(10 << 30) },
        Limit { gpu: None, amount: Amount::Bytes(0) },
    ];
    SegmentFile::create_in(&directory, 7).unwrap().publish(&path, &limits, &[(uuid, 300 << 20)]).unwrap();
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "its first name is gone");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o666);
    let [gpu] = LedgerView::open(&path, Place::Segment).unwrap().gpus().try_into().unwrap();
    assert_eq!((gpu.uuid, gpu.limit, gpu.context), (uuid, Some(10 << 30), 300 << 20));
    assert!(Writer::join(&CString::new(path.as_os_str().as_bytes()).unwrap()).is_ok());
    // Another segment in the same directory takes it for no leftover.
    drop(SegmentFile::create_in(&directory, 8).unwrap());
    assert!(path.exists());
}
