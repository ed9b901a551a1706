//! Waits for supervisors to end: one thread for all of them, asleep until one does.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use radrm_os::ProcessIdentity;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::attempt::Attempt;
use super::descriptors;
use super::error::DaemonError;
use super::message::Message;

/// Time after which it is tried again where there are no descriptors.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Way in which a process is watched.
#[derive(Clone, Debug)]
enum Watched {
    /// By a descriptor, which the thread shares while it sleeps.
    By(Arc<OwnedFd>),
    /// No descriptor can be had, or only one that clients and files would lack: it is checked now and then.
    Later(ProcessIdentity),
    Gone,
}

impl Watched {
    /// Only a number that is not a process's, or another's, means that the process is gone.
    fn begin(who: ProcessIdentity) -> Self {
        match radrm_os::pidfd::open(who.pid) {
            // Checked after the descriptor was made: it cannot be a later process's.
            Ok(_) if who.is_gone() => Self::Gone,
            Ok(fd) if !descriptors::leaves_room(&fd) => Self::Later(who),
            Ok(fd) => Self::By(Arc::new(fd)),
            Err(Errno::SRCH) => Self::Gone,
            Err(_) => Self::Later(who),
        }
    }
}

/// The thread's list.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    list: Arc<Mutex<BTreeMap<Attempt, Watched>>>,
    bell: Arc<OwnedFd>,
    to: Sender<Message>,
}

impl Watch {
    /// Starts the thread.
    pub(crate) fn start(to: Sender<Message>) -> Result<Self, DaemonError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| DaemonError::NoEventfd(error.into()))?;
        let watch = Self { list: Arc::default(), bell: Arc::new(bell), to };
        let inner = watch.clone();
        thread::Builder::new()
            .name("supervisors".into())
            .stack_size(256 << 10)
            .spawn(move || inner.run())
            .map_err(DaemonError::NoThread)?;
        Ok(watch)
    }

    /// Reports when this process is gone; at once if it is.
    pub(crate) fn add(&self, attempt: Attempt, who: ProcessIdentity) {
        match Watched::begin(who) {
            Watched::Gone => {
                let _ = self.to.send(Message::SupervisorEnded(attempt));
            }
            watched => {
                self.list.lock().unwrap_or_else(PoisonError::into_inner).insert(attempt, watched);
                let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
            }
        }
    }

    /// The way to the engine.
    pub(crate) fn sender(&self) -> Sender<Message> {
        self.to.clone()
    }

    fn run(self) {
        loop {
            let mut ended = Vec::new();
            let mut fds: Vec<(Attempt, Arc<OwnedFd>)> = Vec::new();
            let mut later = false;
            for (attempt, watched) in self.list.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
                if let Watched::Later(who) = watched {
                    *watched = Watched::begin(*who);
                }
                match watched {
                    Watched::By(fd) => fds.push((*attempt, fd.clone())),
                    Watched::Later(_) => later = true,
                    Watched::Gone => ended.push(*attempt),
                }
            }
            let mut polled = vec![PollFd::new(&*self.bell, PollFlags::IN)];
            polled.extend(fds.iter().map(|(_, fd)| PollFd::new(&**fd, PollFlags::IN)));
            let most = match (ended.is_empty(), later) {
                (false, _) => Some(Duration::ZERO),
                (true, true) => Some(RETRY_INTERVAL),
                (true, false) => None,
            };
            let most = most.and_then(|most| most.try_into().ok());
            if poll(&mut polled, most.as_ref()).is_err() {
                continue;
            }
            let rung = polled.iter().skip(1).zip(&fds);
            ended.extend(rung.filter(|(fd, _)| !fd.revents().is_empty()).map(|(_, (attempt, _))| *attempt));
            let mut count = [0; 8];
            let _ = rustix::io::read(&*self.bell, &mut count);
            let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
            for attempt in ended {
                list.remove(&attempt);
                if self.to.send(Message::SupervisorEnded(attempt)).is_err() {
                    return;
                }
            }
        }
    }
}
