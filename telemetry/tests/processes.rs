//! Real processes: forked, killed, become another program, come again.

mod common;

use common::{fork, gpu, join, path, wait};
use radrm_telemetry::*;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;

/// Allocates and releases for ever; what it holds is always a multiple of `BLOCK`.
fn busy(file: &SegmentFile) {
    let writer = join(file);
    let gpu = gpu(&writer);
    let lane = writer.lane(std::process::id());
    let own = lane.own_counts();
    let kernel = writer.kernel(b"busy", &KernelAttributes::default());
    for n in 0.. {
        let block = Block { bytes: BLOCK, kind: Kind::Device, gpu, ns: writer.now(), aux: n };
        writer.charge_by(own, SiteId::NONE, gpu, Kind::Device, BLOCK, block.ns);
        writer.blocks().insert(BlockKey::pointer(n << 12), &block);
        lane.launch(&writer, kernel, 2, 64, 0);
        writer.event(&Event { a: n, b: !n, ..Event::new(EventKind::LargeAlloc, block.ns) });
        if n % 3 == 0
            && let Some(block) = writer.blocks().remove(BlockKey::pointer(n << 12))
        {
            writer.discharge_by(own, SiteId::NONE, gpu, Kind::Device, block.bytes, writer.now());
        }
    }
}

/// Checks what must hold of the figures of a process at any moment, and more of one that is dead.
fn consistent(segment: &Segment, slot: &SlotInfo, ring: &mut RingReader, dead: bool) -> u64 {
    for event in ring.poll(segment, dead) {
        assert!(event.kind == EventKind::Joined || event.b == !event.a, "a torn event: {event:?}");
    }
    let process = segment.process(slot).unwrap().unwrap();
    let Some(account) = process.accounts.first() else { return 0 };
    let device = &account.kinds[0];
    // Unless the process is between two of the adds of one call.
    let slack = if dead { BLOCK } else { u64::MAX };
    assert!(account.total_now.abs_diff(device.now) <= slack, "{account:?}");
    assert_eq!(account.total_now % BLOCK, 0);
    assert!(device.peak >= device.now || !dead || device.peak + BLOCK >= device.now, "{account:?}");
    assert_eq!(account.peak.total % BLOCK, 0);
    assert_eq!(process.bypasses, []);
    if dead {
        let live = device.live_blocks();
        assert!((live * BLOCK).abs_diff(device.now) <= BLOCK, "{account:?}");
        let mut listed = 0;
        segment
            .each_block(slot.slot, |it| {
                assert_eq!((it.block.bytes, it.block.aux << 12), (BLOCK, it.key.value()));
                listed += 1;
            })
            .unwrap();
        assert!(u64::abs_diff(listed, live) <= 1, "{listed} listed, {account:?}");
        let timeline = segment.timeline(slot.slot, account.gpu).unwrap();
        if let Some(last) = timeline.last() {
            assert!(last.last_kinds[0].abs_diff(device.now) <= BLOCK, "{last:?} {account:?}");
            let max = timeline.iter().map(|it| it.max_total).max().unwrap_or(0);
            assert!(account.peak.total.abs_diff(max) <= BLOCK);
        }
        let launches = process.launches();
        assert!(launches.abs_diff(device.allocs) <= 1, "{launches} {account:?}");
        return launches;
    }
    0
}

#[test]
fn killed_at_any_moment_a_process_leaves_figures_that_agree() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let segment = file.segment().unwrap();
    let begun = Instant::now();
    let mut rounds = 0u32;
    let mut launches = 0;
    // Some hundred kills; not so many on a machine that is busy with something else.
    while rounds < 200 && begun.elapsed() < Duration::from_secs(6) {
        let children: Vec<_> = (0..2).map(|_| fork(|| busy(&file))).collect();
        std::thread::sleep(Duration::from_micros(u64::from(rounds * 137 % 4000)));
        let mut rings: Vec<_> =
            segment.slots().unwrap().iter().map(|it| (*it, RingReader::new(it))).collect();
        for (slot, ring) in &mut rings {
            consistent(&segment, slot, ring, false);
        }
        for child in children {
            // SAFETY: our own child, not waited for yet.
            unsafe { libc::kill(child, libc::SIGKILL) };
            assert_eq!(libc::WTERMSIG(wait(child)), libc::SIGKILL);
        }
        for slot in segment.slots().unwrap() {
            assert_eq!(slot.liveness, Liveness::Dead);
            launches += consistent(&segment, &slot, &mut RingReader::new(&slot), true);
            segment.harvest(&slot).unwrap();
        }
        rounds += 1;
    }
    assert!(rounds >= 10 && launches > 0, "{rounds} rounds, {launches} launches");
}

#[test]
fn a_segment_holds_a_thousand_dead_and_reuses_those_that_are_saved() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let segment = file.segment().unwrap();
    let one = |amount: u64| {
        let status = wait(fork(|| {
            let writer = join(&file);
            writer.charge(gpu(&writer), Kind::Device, amount, writer.now());
        }));
        libc::WEXITSTATUS(status) == 0
    };
    for n in 0..layout::SLOTS as u64 {
        assert!(one(n + 1));
    }
    let slots = segment.slots().unwrap();
    assert_eq!(slots.len(), layout::SLOTS);
    assert_eq!(Writer::join(&path(&file)).err(), Some(JoinError::Full));
    let notices = || segment.notices().unwrap().0.iter().map(|seen| seen.notice).collect::<Vec<_>>();
    assert_eq!(notices(), [Notice::Unjoined(JoinFailure::Full)]);
    segment.harvest(&slots[500]).unwrap();
    assert!(one(77), "the slot that was saved is free again");
    assert_eq!(Writer::join(&path(&file)).err(), Some(JoinError::Full));
    let again = segment.slot(500).unwrap();
    assert_eq!(again.generation, slots[500].generation + 1);
    assert_eq!(segment.process(&slots[500]).unwrap(), None, "the old one is gone");
    let process = segment.process(&again).unwrap().unwrap();
    assert_eq!(process.accounts[0].total_now, 77, "the new one starts from nothing");
    assert_eq!(segment.process(&slots[499]).unwrap().unwrap().accounts[0].total_now, 500);
}

#[test]
fn a_process_that_becomes_another_program_ends_its_slot() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let segment = file.segment().unwrap();
    // Joining once more is what the new program does: same pid, same start.
    let (first, second) = (join(&file), join(&file));
    assert_ne!(first.slot(), second.slot());
    assert_eq!(segment.slot(first.slot()).unwrap().liveness, Liveness::Execed);
    assert_eq!(segment.slot(second.slot()).unwrap().liveness, Liveness::Running);
}

#[test]
fn a_forked_child_has_a_slot_of_its_own() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let parent = join(&file);
    let gpu = gpu(&parent);
    parent.charge(gpu, Kind::Device, 5, parent.now());
    let child = fork(|| {
        let child = join(&file);
        child.charge(gpu, Kind::Device, 7, child.now());
        child.leave(EndReason::Exited);
    });
    assert_eq!(wait(child), 0);
    let figures: Vec<_> = file
        .segment()
        .unwrap()
        .processes()
        .unwrap()
        .iter()
        .map(|it| (it.slot.liveness, it.slot.own_pid as i32, it.accounts[0].total_now))
        .collect();
    let own = std::process::id() as i32;
    assert_eq!(figures, [(Liveness::Running, own, 5), (Liveness::Exited, child, 7)]);
}

#[test]
fn many_threads_count_exactly() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let writer = join(&file);
    let gpu = gpu(&writer);
    let threads: Vec<_> = (0..80u64)
        .map(|thread| {
            std::thread::spawn(move || {
                // SAFETY: no precondition.
                let lane = writer.lane(unsafe { libc::gettid() } as u32);
                let kernel =
                    writer.kernel(format!("k{}", thread % 70).as_bytes(), &KernelAttributes::default());
                // Threads beyond the lanes have none, and count in the account.
                let own = lane.own_counts();
                for n in 0..500 {
                    let key = BlockKey::pointer(thread << 32 | n << 9);
                    let ns = writer.now();
                    writer.charge_by(own, SiteId::NONE, gpu, Kind::Device, 10, ns);
                    let block = Block { bytes: 10, kind: Kind::Device, gpu, ns, aux: thread };
                    assert_eq!(writer.blocks().insert(key, &block), Inserted::New);
                    lane.launch(&writer, kernel, 1, 2, 3);
                    if n % 2 == 0 {
                        assert_eq!(writer.blocks().remove(key), Some(block));
                        writer.discharge_by(own, SiteId::NONE, gpu, Kind::Device, 10, writer.now());
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|it| it.join().unwrap());
    let segment = file.segment().unwrap();
    let process = segment.processes().unwrap().remove(0);
    let account = &process.accounts[0];
    assert_eq!(account.total_now, 80 * 250 * 10);
    assert_eq!((account.kinds[0].allocs, account.kinds[0].frees), (80 * 500, 80 * 250));
    let own = writer.own_memory().next().unwrap();
    assert_eq!((own.now, own.allocations, own.releases), (account.total_now, 80 * 500, 80 * 250));
    assert!(account.peak.total >= account.total_now && account.peak.total == account.kinds[0].peak);
    assert_eq!(process.launches(), 80 * 500);
    assert_eq!(process.kernels.len(), 70);
    let threads: u64 = process.kernels.iter().map(|it| it.threads).sum();
    assert_eq!(threads, 2 * 80 * 500);
    let mut listed = 0;
    segment.each_block(0, |_| listed += 1).unwrap();
    assert_eq!(listed, 80 * 250);
    let timeline = segment.timeline(0, gpu).unwrap();
    assert_eq!(timeline.last().unwrap().last_kinds[0], account.total_now);
    assert_eq!(timeline.iter().map(|it| it.max_total).max(), Some(account.peak.total));
}

#[test]
fn joining_leaves_nothing_behind_in_the_process() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let child = fork(|| {
        let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = files();
        // SAFETY: errno of this thread.
        unsafe { *libc::__errno_location() = 4242 };
        let writer = join(&file);
        let gpu = gpu(&writer);
        writer.charge(gpu, Kind::Device, 1, writer.now());
        writer
            .blocks()
            .insert(BlockKey::pointer(1), &Block { bytes: 1, kind: Kind::Device, gpu, ns: 0, aux: 0 });
        writer.kernel(b"k", &KernelAttributes::default());
        writer.lane(1);
        writer.lane(2);
        assert_eq!(Writer::join(c"/nowhere").err(), Some(JoinError::Open(libc::ENOENT)));
        assert_eq!(Writer::join(c"/proc/self/exe").err(), Some(JoinError::Open(libc::ETXTBSY)));
        // SAFETY: errno of this thread.
        assert_eq!(unsafe { *libc::__errno_location() }, 4242);
        assert_eq!(files(), before);
    });
    assert_eq!(wait(child), 0);
}

#[test]
fn files_are_private_whatever_the_umask() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("radrm");
    let child = fork(|| {
        for umask in [0, 0o777] {
            // SAFETY: a child of its own.
            unsafe { libc::umask(umask) };
            let file = SegmentFile::create_in(&directory, u64::from(umask)).unwrap();
            assert_eq!(std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o7777, 0o600);
            assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o7777, 0o700);
            // SAFETY: as above; the call returns the umask by setting it.
            assert_eq!(unsafe { libc::umask(umask) }, umask);
            join(&file);
        }
    });
    assert_eq!(wait(child), 0);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(SegmentFile::create_in(&directory, 4), Err(CreateError::UnsafeDirectory(_))));
}

#[test]
fn foreign_files_and_other_versions_have_their_own_errors() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("file");
    let name = std::ffi::CString::new(place.to_str().unwrap()).unwrap();
    for (words, version) in [(vec![], None), (vec![1u64, 2], None), (vec![layout::MAGIC, 99, 5], Some(99))] {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        std::fs::write(&place, bytes).unwrap();
        let expected = version.map_or(JoinError::Foreign, JoinError::Version);
        assert_eq!(Writer::join(&name).err(), Some(expected));
        match Segment::open(&place) {
            Err(SegmentError::Version(found)) => assert_eq!(Some(found), version),
            Err(SegmentError::Foreign) => assert_eq!(version, None),
            other => panic!("{other:?}"),
        }
    }
}

/// Mounts a tmpfs of `bytes` over `directory`, seen by the calling process only; false if that is not allowed.
fn small_tmpfs(directory: &std::path::Path, bytes: usize) -> bool {
    let c = |text: &str| std::ffi::CString::new(text).unwrap();
    let (place, options) = (c(directory.to_str().unwrap()), c(&format!("size={bytes}")));
    let private = libc::MS_REC | libc::MS_PRIVATE;
    let null = std::ptr::null();
    // SAFETY: all texts end with zeros and outlive the calls.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(null, c"/".as_ptr(), null, private, null.cast()) == 0
            && libc::mount(c"tmpfs".as_ptr(), place.as_ptr(), c"tmpfs".as_ptr(), 0, options.as_ptr().cast())
                == 0
    }
}

#[test]
fn a_full_file_system_is_an_error_and_never_a_signal() {
    let home = tempfile::tempdir().unwrap();
    let child = fork(|| {
        if !small_tmpfs(home.path(), 2 << 20) {
            eprintln!("skipped: mounting is not allowed here");
            return;
        }
        let file = SegmentFile::create_in(&home.path().join("radrm"), 0).unwrap();
        let segment = file.segment().unwrap();
        let writer = join(&file);
        let gpu = gpu(&writer);
        let mut held = 0;
        let full = (1u64..).find(|n| {
            let block = Block { bytes: *n, kind: Kind::Device, gpu, ns: 0, aux: 0 };
            let inserted = writer.blocks().insert(BlockKey::pointer(n << 9), &block);
            held += u64::from(inserted == Inserted::New);
            inserted == Inserted::Full
        });
        assert!(full.is_some() && held > 1000, "{held}");
        // Another process eats what is left.
        assert_eq!(wait(fork(|| while Writer::join(&path(&file)).is_ok() {})), 0);
        assert!(matches!(Writer::join(&path(&file)), Err(JoinError::NoSpace(libc::ENOSPC))));
        // Counting goes on where there is memory for it, and says where there is not.
        for second in 0..40_000 {
            writer.charge(gpu, Kind::Device, 10, second * 1_000_000_000);
        }
        for lane in 1..70 {
            let lane = writer.lane(lane);
            lane.launch(&writer, KernelId::from_number(u64::from(lane.number())), 1, 1, 1);
        }
        let slot = segment.slot(writer.slot()).unwrap();
        let process = segment.process(&segment.slots().unwrap()[0]).unwrap().unwrap();
        assert_eq!(process.accounts[0].total_now, 400_000, "{slot:?}");
        let missing = |reason| process.bypasses.iter().any(|(it, _)| *it == reason);
        assert!(missing(Bypass::TimelineFull) && missing(Bypass::LaneFull), "{:?}", process.bypasses);
        let mut listed = 0;
        segment.each_block(writer.slot(), |_| listed += 1).unwrap();
        assert_eq!(listed, held);
        let notices = segment.notices().unwrap().0;
        assert!(notices.iter().any(|seen| seen.notice == Notice::Unjoined(JoinFailure::NoSpace)));
    });
    assert_eq!(wait(child), 0);
}

/// A generator that needs no crate: xorshift.
fn noise(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn a_damaged_segment_is_survived() {
    let directory = tempfile::tempdir().unwrap();
    let file = SegmentFile::create_in(&directory.path().join("radrm"), 0).unwrap();
    let writer = join(&file);
    let gpu = gpu(&writer);
    let raw = std::fs::OpenOptions::new().write(true).open(file.path()).unwrap();
    let mut state = 0x1234_5678_9abc_def1;
    let fill = |state: &mut u64, at: u64, bytes: usize| {
        let noise: Vec<u8> = (0..bytes / 8).flat_map(|_| noise(state).to_ne_bytes()).collect();
        raw.write_all_at(&noise, at).unwrap();
    };
    for round in 0..6u64 {
        let slot = layout::slot_at(0);
        fill(&mut state, slot, layout::BASE_BYTES as usize);
        fill(&mut state, slot + layout::HASHES_AT, 300 << 10);
        fill(&mut state, slot + layout::LANES_AT, 64 << 10);
        fill(&mut state, slot + layout::TIMELINES_AT, 1 << 20);
        fill(&mut state, slot + layout::LEVELS_AT, 64 << 10);
        if round > 2 {
            // The header's first words stay, or nothing would be read at all.
            fill(&mut state, 24, layout::HEADER_BYTES as usize - 24);
            let live = layout::SlotState::new(layout::SlotState::LIVE, 1, std::process::id());
            raw.write_all_at(&live.0.to_ne_bytes(), layout::DIRECTORY_AT).unwrap();
        }
        let segment = Segment::open(file.path()).unwrap();
        let slots = segment.slots().unwrap();
        let info = segment.slot(0).unwrap();
        assert!(slots.contains(&info));
        segment.job().unwrap();
        segment.gpus().unwrap();
        segment.process(&info).unwrap();
        segment.timeline(0, gpu).unwrap();
        segment.largest_blocks(0, 10).unwrap();
        segment.totals(&info).unwrap();
        let mut ring = RingReader::new(&info);
        ring.poll(&segment, false);
        ring.poll(&segment, true);
        // The writer on the other side of the damage goes on too.
        writer.charge(gpu, Kind::Device, 5, writer.now());
        writer.discharge(gpu, Kind::Device, 5, writer.now());
        writer
            .blocks()
            .insert(BlockKey::pointer(5), &Block { bytes: 1, kind: Kind::Vmm, gpu, ns: 0, aux: 0 });
        writer.blocks().remove(BlockKey::pointer(5));
        writer.kernel(format!("k{round}").as_bytes(), &KernelAttributes::default());
        writer.lane(7).launch(&writer, KernelId::from_number(9), 1, 1, 1);
        writer.event(&Event::new(EventKind::Other, 0));
    }
    // A file that was cut answers with errors, not with a signal.
    let segment = Segment::open(file.path()).unwrap();
    raw.set_len(100).unwrap();
    assert!(matches!(segment.slots(), Err(SegmentError::Io(_))));
    assert!(segment.job().is_err() && segment.processes().is_err());
    assert!(matches!(Segment::open(file.path()), Err(SegmentError::Foreign)));
}
