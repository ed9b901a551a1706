//! Segments of jobs, which their processes may write over.

use std::ffi::CString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use bolero::check;
use radrm_telemetry::{
    Block, BlockKey, Candidate, GpuIndex, Kind, RingReader, Segment, SegmentFile, SlotInfo, Writer,
};

/// Bytes behind a slot's beginning in which most of its figures stand.
const SLOT: u64 = 4 << 20;

/// Everything that is read of a segment.
fn read(segment: &Segment) {
    let _ = (segment.job(), segment.gpus(), segment.notices(), segment.quotas(), segment.overheads());
    let _ = (segment.budget(), segment.gate());
    let slots = segment.slots().unwrap_or_default();
    let _ = segment.processes_within(Duration::from_millis(50), radrm_os::thread_time);
    for slot in slots.iter().take(2) {
        read_slot(segment, slot);
    }
}

fn read_slot(segment: &Segment, slot: &SlotInfo) {
    let _ = (segment.totals(slot), segment.uses(slot), segment.throttled(slot), segment.held(slot));
    let _ =
        (segment.postmortems(slot), segment.ranges(slot), segment.open_ranges(slot), segment.stacks(slot));
    let _ = segment.largest_blocks(slot.slot, 10);
    if let Some(gpu) = GpuIndex::from_number(0) {
        let _ = segment.timeline(slot.slot, gpu);
    }
    let _ = RingReader::new(slot).poll(segment, false);
}

#[test]
fn segments() {
    let place = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let made = SegmentFile::create_in(&place.path().join("r"), 7).expect("a segment");
    let path = CString::new(made.path().as_os_str().as_bytes()).expect("a path");
    let writer = Writer::join(&path).expect("joined");
    let gpu = writer.gpu(&[1; 16], b"GPU", 80 << 30, b"0000:01:00.0").expect("a GPU");
    writer.charge(gpu, Kind::Device, 100, writer.now());
    let kernel = writer.kernel(b"square", &radrm_telemetry::KernelAttributes::default());
    writer.lane(1).launch(&writer, kernel, 4, 1024, 16);
    let block = Block { bytes: 100, kind: Kind::Device, gpu, ns: 5, aux: 6 };
    writer.blocks().insert(BlockKey::pointer(0x7f00_0000_0000), &block);
    let file = File::options().read(true).write(true).open(made.path()).expect("the file");
    let slot = radrm_telemetry::layout::slot_at(0);
    let path = made.path();
    check!().with_max_len(96).for_each(|bytes: &[u8]| {
        let mut before = Vec::new();
        for step in bytes.as_chunks::<12>().0.iter().take(8) {
            let [how, a, b, c, word @ ..] = *step;
            let place = u64::from(u32::from_le_bytes([a, b, c, 0]));
            let at = match how % 4 {
                0 => place % (64 << 10),
                1 => slot + place % (64 << 10),
                _ => slot + place % SLOT,
            };
            let at = at / 8 * 8;
            let value = match how / 4 % 4 {
                0 => u64::from_le_bytes(word),
                1 => u64::MAX,
                2 => u64::from(word[0]),
                _ => u64::from(word[0]) << (word[1] % 64),
            };
            let mut old = [0; 8];
            file.read_exact_at(&mut old, at).expect("read");
            before.push((at, old));
            file.write_all_at(&value.to_le_bytes(), at).expect("written");
        }
        if let Ok(segment) = Candidate::named(path).and_then(|found| found.open()) {
            read(&segment);
        }
        for (at, old) in before.iter().rev() {
            file.write_all_at(old, *at).expect("written");
        }
    });
    let whole = Segment::open(path).expect("the whole").processes().expect("its processes");
    assert_eq!(whole.len(), 1, "the whole is read as it was");
}
