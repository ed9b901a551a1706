//! A word that the producer changes when it has sent something, on which the consumer sleeps.
//!
//! A consumer that sleeps on its socket is woken as a reader of a producer that is about to sleep itself, so the system keeps
//! it on the producer's processor, where it waits for the producer to do so. A futex has no such rule, and costs one system
//! call less on the way. The word is only a hint: what counts is in the socket, which is looked into before each sleep.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::memory::{Access, Slot, View};
use crate::{Error, sys};

/// Bytes of its memory: a page.
const BYTES: u64 = 4096;

/// The producer's side, one for each consumer.
#[derive(Debug)]
pub(crate) struct Bell(Slot);

impl Bell {
    /// A bell that has not rung.
    ///
    /// # Errors
    /// There is too little memory.
    pub fn new() -> Result<Self, Error> {
        Slot::new(BYTES).map(Self)
    }

    /// Descriptor for the consumer: open for reading only.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }

    /// Wakes the consumer; whether it slept.
    pub fn ring(&self) -> bool {
        // SAFETY: a slot begins with a page that lives as long as it does, is aligned, and here is used as this word only.
        let word = unsafe { &*self.0.start().cast::<AtomicU32>() };
        // Release: what was sent before is in the socket for a consumer that sees the new value.
        word.fetch_add(1, Ordering::Release);
        sys::futex_wake(word)
    }
}

/// The consumer's side.
#[derive(Debug)]
pub(crate) struct Ear(View);

impl Ear {
    /// Maps what the producer has sent.
    ///
    /// # Errors
    /// It is too short.
    pub fn new(fd: &OwnedFd) -> Result<Self, Error> {
        View::new(fd, BYTES, Access::Shared).map(Self)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: a view of a page lives as long as it does and is aligned. The word is only loaded: the page is read-only.
        unsafe { &*self.0.start().cast::<AtomicU32>() }
    }

    /// Value to sleep on. Read it before looking into the socket.
    pub fn value(&self) -> u32 {
        self.word().load(Ordering::Acquire)
    }

    /// Sleeps until it rings, unless it has since this value; or for so long. False after a signal.
    pub fn wait(&self, value: u32, timeout: Duration) -> bool {
        sys::futex_wait(self.word(), value, timeout)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_bell_that_rang_since_the_value_does_not_let_its_consumer_sleep() {
        let bell = Bell::new().unwrap();
        let ear = Ear::new(&bell.descriptor().try_clone_to_owned().unwrap()).unwrap();
        let value = ear.value();
        // Not rung: it comes back by itself.
        ear.wait(value, Duration::from_millis(1));
        assert!(!bell.ring());
        assert_ne!(ear.value(), value);
        // An hour, if it slept.
        ear.wait(value, Duration::from_hours(1));
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    ear.wait(ear.value(), Duration::from_hours(1));
                }
            });
            // Until it sleeps when it rings.
            while !bell.ring() {
                std::thread::yield_now();
            }
            end.store(true, Ordering::Relaxed);
            while !sleeper.is_finished() {
                bell.ring();
                std::thread::yield_now();
            }
        });
    }
}
