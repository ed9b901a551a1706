use super::*;

fn filled(byte: u8, bytes: usize) -> Slot {
    let slot = Slot::new(bytes as u64).unwrap();
    // SAFETY: the slot has at least so many bytes.
    unsafe { slot.start().write_bytes(byte, bytes) };
    slot
}

fn view(slot: &Slot, access: Access) -> View {
    let descriptor = slot.descriptor().try_clone_to_owned().unwrap();
    View::new(&descriptor, slot.bytes(), access).unwrap()
}

fn first(view: &View) -> u8 {
    // SAFETY: a view has at least one byte.
    unsafe { view.start().read_volatile() }
}

#[test]
fn a_consumer_sees_what_the_producer_writes_and_can_write_nothing() {
    let slot = filled(1, 10_000);
    let view = view(&slot, Access::Shared);
    assert_eq!(first(&view), 1);
    // SAFETY: the slot has bytes.
    unsafe { slot.start().write_volatile(2) };
    assert_eq!(first(&view), 2);

    let fd = slot.descriptor().as_raw_fd();
    let writable = File::options().write(true).read(true).open(format!("/proc/self/fd/{fd}"));
    for file in writable.iter().map(AsRawFd::as_raw_fd).chain([fd]) {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        assert!(Mapping::new(file, 4096, both, libc::MAP_SHARED).is_err(), "mapped writable");
        // SAFETY: the buffer has one byte.
        assert_eq!(unsafe { libc::pwrite(file, c"x".as_ptr().cast(), 1, 0) }, -1);
        // SAFETY: no pointer.
        unsafe {
            assert_eq!(libc::ftruncate(file, 0), -1, "shorter");
            assert_eq!(libc::ftruncate(file, 1 << 20), -1, "longer");
            let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            assert_eq!(libc::fallocate(file, hole, 0, 4096), -1, "a hole");
        }
        assert!(sys::seal(file, libc::F_SEAL_WRITE).is_err(), "sealed against its producer");
    }
    // SAFETY: the range is the view's own.
    let made_writable =
        unsafe { libc::mprotect(view.start().cast(), 4096, libc::PROT_READ | libc::PROT_WRITE) };
    assert_eq!(made_writable, -1);
    // SAFETY: the slot has bytes.
    unsafe { slot.start().write_volatile(3) };
    assert_eq!(first(&view), 3);
}

#[test]
fn what_a_consumer_writes_stays_its_own_until_it_releases() {
    for bytes in [10_000, 17 << 20] {
        let slot = filled(1, bytes);
        let (one, other) = (view(&slot, Access::Private), view(&slot, Access::Private));
        assert_eq!((first(&one), first(&other)), (1, 1));
        assert!(!one.is_written(bytes as u64).unwrap(), "reading is no writing");
        // SAFETY: both are mapped writable and have so many bytes.
        unsafe {
            one.start().write_volatile(9);
            other.start().add(bytes - 1).write_volatile(9);
        }
        assert!(one.is_written(bytes as u64).unwrap());
        assert!(other.is_written(bytes as u64).unwrap(), "the last page");
        assert_eq!((first(&one), first(&other)), (9, 1));
        // SAFETY: the slot has bytes.
        assert_eq!(unsafe { slot.start().read_volatile() }, 1);
        one.reset(bytes as u64);
        // SAFETY: the slot has bytes.
        unsafe { slot.start().write_volatile(4) };
        assert_eq!(first(&one), 4, "the next batch is seen");
        assert!(!one.is_written(bytes as u64).unwrap());
    }
}

#[test]
fn memory_that_could_become_smaller_is_copied_and_not_mapped() {
    let loose = sys::memory_file("loose").unwrap();
    let file = File::from(loose.try_clone().unwrap());
    file.set_len(8192).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    sys::seal(loose.as_raw_fd(), libc::F_SEAL_GROW | F_SEAL_FUTURE_WRITE).unwrap();
    let view = View::new(&loose, 8192, Access::Shared).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(first(&view), b'x', "no SIGBUS");
    let slot = filled(1, 4096);
    let descriptor = slot.descriptor().try_clone_to_owned().unwrap();
    assert!(View::new(&descriptor, slot.bytes() + 1, Access::Shared).is_err(), "longer than the file");
    assert!(View::new(&descriptor, 0, Access::Shared).is_err());
    let (pipe, _other) = io::pipe().unwrap();
    assert!(View::new(&OwnedFd::from(pipe), 1, Access::Shared).is_err());
}

#[test]
fn copies_are_bounded_by_the_memory() {
    let slot = filled(5, 100);
    let view = view(&slot, Access::Shared);
    assert_eq!(view.copy(90, 10), Some(vec![5; 10]));
    assert_eq!(view.copy(view.bytes(), 1), None);
    assert_eq!(view.copy(u64::MAX, 2), None);
    assert_eq!(view.copy(view.bytes(), 0), Some(Vec::new()));
}

#[test]
fn a_spilled_batch_reads_the_same_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let slot = filled(7, 5000);
    let file = slot.spill(5000, folder.path()).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let view = View::new(&file, 5000, Access::Private).unwrap();
    assert_eq!(view.copy(0, 5000), Some(vec![7; 5000]));
    assert!(slot.spill(1, Path::new("/nowhere")).is_err());
}
