//! Numbers of elements that depend on data.
//!
//! Kernels are not computed, so a number that the host reads back is zero. For most that is harmless; but the
//! result of `nonzero`, of a boolean mask or of `unique` is as large as such a number says. The kernels that
//! count for these are known by name: when one is launched, the number that it would leave is worked out from
//! how many elements it looks at and a settable share, and handed over when the host reads that address.
//!
//! | kernel (CUB) | counts | arguments |
//! |---|---|---|
//! | reduction over `NonZeroOp` | elements that are not zero | input, result, elements |
//! | select | elements that are kept | input, flags, output, result, ..., elements (7) |
//! | reduce by key | runs of equal elements | keys, unique, values, aggregates, result, ..., elements (9) |
//! | sum of 64-bit numbers up to each | all of them, in its last element: taken to be ones | input, result, ..., elements (6) |

use core::ffi::c_void;
use std::collections::{HashMap, VecDeque};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError, RwLock};

use crate::notes;

/// Percentage of elements that operations keep.
const FILL: &str = "RADRM_DRY_RUN_FILL";
const USUAL_FILL: u64 = 50;
/// Launches after which a number that was not read is forgotten: its address may belong to something else.
const LIFETIME: u64 = 64;

/// Elements from which on the share that is kept decides how much memory a program needs: a token that an expert gets
/// has thousands of numbers.
const MANY: u64 = 1024;
/// `radrm-run` gives no bound where a remark begins so. The largest share has one.
const NO_BOUND: &str =
    "no bound: how many elements masks, nonzero and unique keep depends on data; --fill 100 keeps all";

/// Number that a kernel counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Elements that are not zero, of a block: the next reduction adds the blocks up.
    NonZeroByBlock,
    /// Elements that are not zero.
    NonZero,
    /// The sum of what blocks counted.
    SumOfBlocks,
    /// Elements that are kept.
    Select { wide: bool },
    /// Runs of equal elements.
    Runs,
    /// A sum up to each element.
    Scan,
}

/// A number that stands at an address once the kernel has run.
struct Number {
    address: u64,
    bytes: usize,
    value: u64,
    /// Elements of which so many were counted.
    of: u64,
    launch: u64,
    what: &'static str,
}

#[derive(Default)]
struct Pending {
    numbers: VecDeque<Number>,
    /// Elements of the reduction that is half done.
    by_block: u64,
}

static ROLES: LazyLock<RwLock<HashMap<u64, Role>>> = LazyLock::new(RwLock::default);
static PENDING: LazyLock<Mutex<Pending>> = LazyLock::new(Mutex::default);

fn fill() -> u64 {
    static VALUE: OnceLock<u64> = OnceLock::new();
    *VALUE.get_or_init(|| {
        std::env::var(FILL)
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|f| *f <= 100)
            .unwrap_or(USUAL_FILL)
    })
}

/// Role of a kernel of that name.
fn role(name: &str) -> Option<Role> {
    let has = |part: &str| name.contains(part);
    if has("DeviceReduceSingleTileKernel") {
        // The second half of a reduction has its input from the first.
        return Some(if has("NonZeroOp") { Role::NonZero } else { Role::SumOfBlocks });
    }
    if has("DeviceReduceKernel") && has("NonZeroOp") {
        return Some(Role::NonZeroByBlock);
    }
    if has("DeviceSelectSweepKernel") {
        return Some(Role::Select { wide: has("PlS") || has("Pl") });
    }
    if has("DeviceReduceByKeyKernel") {
        return Some(Role::Runs);
    }
    (has("DeviceScanKernel") && has("plusIlE")).then_some(Role::Scan)
}

/// Remembers a kernel that counts.
pub(super) fn learn(kernel: u64, name: &str) {
    if let Some(role) = role(name) {
        ROLES.write().unwrap_or_else(PoisonError::into_inner).insert(kernel, role);
    }
}

/// The arguments of a launch.
#[derive(Clone, Copy)]
struct Arguments(*mut *mut c_void);

impl Arguments {
    /// Argument `index` as a number.
    fn get<T: Copy>(self, index: usize) -> T {
        // SAFETY: only asked for arguments that the kernels of this role have, whose types are at least
        // as large.
        unsafe { (*self.0.add(index)).cast::<T>().read_unaligned() }
    }
}

/// Works out what a launch leaves behind.
pub(super) fn launched(kernel: u64, params: *mut *mut c_void) {
    let launch = super::known::launches();
    let Some(role) = ROLES.read().unwrap_or_else(PoisonError::into_inner).get(&kernel).copied() else {
        return;
    };
    if params.is_null() {
        return;
    }
    let arguments = Arguments(params);
    let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let share = |elements: u64| ((elements * fill()).div_ceil(100), elements);
    let (address, bytes, (value, of), what) = match role {
        Role::NonZeroByBlock => {
            pending.by_block = arguments.get::<u32>(2).into();
            return;
        }
        Role::NonZero => {
            (arguments.get(1), 4, share(arguments.get::<u32>(2).into()), "elements that are not zero")
        }
        Role::SumOfBlocks => {
            let elements = std::mem::take(&mut pending.by_block);
            if elements == 0 {
                return;
            }
            (arguments.get(1), 4, share(elements), "elements that are not zero")
        }
        Role::Select { wide } => {
            let elements = u64::from(arguments.get::<u32>(7));
            (arguments.get(3), if wide { 8 } else { 4 }, share(elements), "unique elements")
        }
        Role::Runs => (arguments.get(4), 8, share(arguments.get::<u32>(9).into()), "unique elements"),
        Role::Scan => {
            let elements = u64::from(arguments.get::<u32>(6));
            let last = arguments.get::<u64>(1) + 8 * elements.saturating_sub(1);
            (last, 8, (elements, elements), "a sum of numbers, each taken to be 1")
        }
    };
    pending
        .numbers
        .retain(|number| number.address != address && launch.saturating_sub(number.launch) < LIFETIME);
    pending.numbers.push_back(Number { address, bytes, value, of, launch, what });
}

/// Hands a number over that the host has just read from `source`.
///
/// # Safety
/// `target` has room for `bytes`.
pub(super) unsafe fn read_back(target: u64, source: u64, bytes: usize) {
    if bytes > 8 {
        return;
    }
    let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let place = pending.numbers.iter().position(|n| n.address == source && n.bytes == bytes);
    let Some(number) = place.and_then(|place| pending.numbers.remove(place)) else { return };
    drop(pending);
    notes::note(notes::Kind::Fill, number.what);
    if number.of >= MANY && number.value < number.of {
        notes::note(notes::Kind::Remark, NO_BOUND);
    }
    let value = number.value.to_le_bytes();
    // SAFETY: as the caller promises.
    unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), target as *mut u8, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_handed_over_once_where_the_kernel_leaves_it() {
        learn(1, "_ZN3cub28DeviceReduceSingleTileKernelIN2at6native9NonZeroOpIfEEEE");
        let (mut input, mut result, mut elements) = (0_u64, 0x1000_u64, 1000_u32);
        let mut params: [*mut c_void; 3] =
            [(&raw mut input).cast(), (&raw mut result).cast(), (&raw mut elements).cast()];
        launched(1, params.as_mut_ptr());
        let mut read = 0_u32;
        let target = &raw mut read as u64;
        // SAFETY: room for four bytes.
        unsafe { read_back(target, 0x1004, 4) };
        assert_eq!(read, 0, "another address");
        // SAFETY: as before.
        unsafe { read_back(target, 0x1000, 4) };
        assert_eq!(u64::from(read), 1000 * fill() / 100);
        read = 0;
        // SAFETY: as before.
        unsafe { read_back(target, 0x1000, 4) };
        assert_eq!(read, 0, "a second time");
    }

    #[test]
    fn kernels_that_do_not_count_have_no_role() {
        assert_eq!(role("_ZN2at6native13reduce_kernelILi512ELi1E"), None);
        assert_eq!(role("_ZN3cub16DeviceScanKernelI4plusIfEE"), None);
        assert_eq!(role("_ZN3cub16DeviceScanKernelISt4plusIlEE"), Some(Role::Scan));
    }
}
