//! A stack of usual size for this process where `ulimit -s` gives it a small one, which its program may be meant to have.

use std::ffi::c_uint;
use std::mem::MaybeUninit;

use crate::child_stack::ChildStack;

/// The command line alone takes several hundred KiB in a debug build.
const MIN_STACK: libc::rlim_t = 4 << 20;
/// Bytes; only what is used takes memory.
const STACK: usize = 8 << 20;

/// Runs `work`, on a stack of its own where that of the process may not grow to [`MIN_STACK`] bytes. The thread stays the
/// same. `work` must not panic.
pub fn run<T>(work: fn() -> T) -> T {
    if limit().is_some_and(|bytes| bytes < MIN_STACK)
        && let Ok(stack) = ChildStack::new(STACK)
    {
        return Call { work, result: None }.on(&stack).unwrap_or_else(work);
    }
    work()
}

fn limit() -> Option<libc::rlim_t> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the result.
    (unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0).then_some(limit.rlim_cur)
}

struct Call<T> {
    work: fn() -> T,
    result: Option<T>,
}

impl<T> Call<T> {
    /// Makes the call on this stack; `None`: it could not be made.
    fn on(mut self, stack: &ChildStack) -> Option<T> {
        let (mut here, mut there) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let (here, there): (*mut libc::ucontext_t, *mut libc::ucontext_t) =
            (here.as_mut_ptr(), there.as_mut_ptr());
        let call = (&raw mut self) as usize as u64;
        let begin: extern "C" fn(c_uint, c_uint) = Self::begin;
        // SAFETY: the new context begins in a function of two numbers on a stack that lives until it has returned, and then
        // goes on in this one, which `swapcontext` fills.
        unsafe {
            if libc::getcontext(there) != 0 {
                return None;
            }
            (*there).uc_stack.ss_sp = stack.bottom();
            (*there).uc_stack.ss_size = STACK;
            (*there).uc_link = here;
            let begin = std::mem::transmute::<extern "C" fn(c_uint, c_uint), extern "C" fn()>(begin);
            libc::makecontext(there, begin, 2, (call >> 32) as c_uint, call as c_uint);
            libc::swapcontext(here, there);
        }
        self.result
    }

    extern "C" fn begin(high: c_uint, low: c_uint) {
        let call = (u64::from(high) << 32 | u64::from(low)) as usize as *mut Self;
        // SAFETY: `on` passes the address of a value that it keeps meanwhile.
        let call = unsafe { &mut *call };
        call.result = Some((call.work)());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_on_the_other_stack_and_gives_its_result() {
        // Kept out of the frames of the test itself.
        #[inline(never)]
        fn deep() -> (usize, u64) {
            let room = std::hint::black_box([1u8; 2 << 20]);
            (room.as_ptr().addr(), room.iter().map(|byte| u64::from(*byte)).sum())
        }
        let stack = ChildStack::new(STACK).unwrap();
        let (at, sum) = Call { work: deep, result: None }.on(&stack).unwrap();
        assert_eq!(sum, 2 << 20);
        assert!((stack.bottom().addr()..stack.top().addr()).contains(&at));
    }
}
