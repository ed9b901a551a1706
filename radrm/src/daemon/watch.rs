//! Waits for keepers to end: one thread for all of them, asleep until one does.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::engine::Message;
use super::status::Who;

/// A job and its attempt.
pub(crate) type Attempt = (u64, u32);

/// The thread's list.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    list: Arc<Mutex<BTreeMap<Attempt, OwnedFd>>>,
    bell: Arc<OwnedFd>,
    to: Sender<Message>,
}

impl Watch {
    /// Starts the thread.
    pub(crate) fn start(to: Sender<Message>) -> Result<Self, String> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| format!("no eventfd: {error}"))?;
        let watch = Self { list: Arc::default(), bell: Arc::new(bell), to };
        let inner = watch.clone();
        thread::Builder::new()
            .name("keepers".into())
            .stack_size(256 << 10)
            .spawn(move || inner.run())
            .map_err(|error| format!("no thread: {error}"))?;
        Ok(watch)
    }

    /// Tells when this process is gone; at once if it is.
    pub(crate) fn add(&self, attempt: Attempt, who: Who) {
        let pid = Pid::from_raw(who.pid.cast_signed());
        let fd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // Looked at after the descriptor was made: it cannot be a later process's.
        match fd.filter(|_| who.lives()) {
            Some(fd) => {
                self.list.lock().unwrap_or_else(PoisonError::into_inner).insert(attempt, fd);
                let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
            }
            None => {
                let _ = self.to.send(Message::KeeperEnded(attempt));
            }
        }
    }

    /// Where the engine is told.
    pub(crate) fn sender(&self) -> Sender<Message> {
        self.to.clone()
    }

    fn run(self) {
        loop {
            let mut ended = Vec::new();
            {
                // Descriptors are added while this thread sleeps, never taken away: it polls copies.
                let fds: Vec<(Attempt, OwnedFd)> = {
                    let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
                    list.iter().filter_map(|(attempt, fd)| Some((*attempt, fd.try_clone().ok()?))).collect()
                };
                let mut polled = vec![PollFd::new(&*self.bell, PollFlags::IN)];
                polled.extend(fds.iter().map(|(_, fd)| PollFd::new(fd, PollFlags::IN)));
                if poll(&mut polled, None).is_err() {
                    continue;
                }
                let rung = polled.iter().skip(1).zip(&fds);
                ended.extend(
                    rung.filter(|(fd, _)| !fd.revents().is_empty()).map(|(_, (attempt, _))| *attempt),
                );
            }
            let mut count = [0; 8];
            let _ = rustix::io::read(&*self.bell, &mut count);
            let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
            for attempt in ended {
                list.remove(&attempt);
                if self.to.send(Message::KeeperEnded(attempt)).is_err() {
                    return;
                }
            }
        }
    }
}
