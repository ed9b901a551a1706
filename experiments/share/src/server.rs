//! The thread of a producer that serves its consumers.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use crate::bell::Bell;
use crate::message::{self, NO_GPU, Refusal, Reply, Request, VERSION};
use crate::place::{Folder, MAX_CONSUMERS};
use crate::producer::{Attached, Inner, Link, NO_SPILL, OTHER_ORDER, Shared};
use crate::ring::{Denied, Slow};
use crate::sys::{self, Descriptor};

/// Timeout of a connection that has not yet requested to attach.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections at once, with those that have not said anything yet.
const MAX_CONNECTIONS: usize = MAX_CONSUMERS + 16;

/// Serves until the producer is closed. Keeps the folder, through which paths lead.
pub(crate) fn run(shared: &Shared, listener: Descriptor, _folder: &Folder) {
    sys::block_signals();
    let wake = shared.wake.as_raw_fd();
    let mut wanted = Vec::new();
    loop {
        wanted.clear();
        wanted.push(sys::wanted(wake, libc::POLLIN));
        let mut ids = Vec::new();
        let mut patience = -1;
        {
            let inner = shared.lock();
            if inner.closing {
                return;
            }
            let full = inner.links.len() >= MAX_CONNECTIONS;
            // A descriptor of -1 is left out.
            wanted.push(sys::wanted(if full { -1 } else { listener.raw() }, libc::POLLIN));
            for (id, link) in &inner.links {
                let output = if link.outbox.is_empty() { 0 } else { libc::POLLOUT };
                wanted.push(sys::wanted(link.socket.raw(), libc::POLLIN | output));
                wanted.push(sys::wanted(link.end.as_ref().map_or(-1, Descriptor::raw), libc::POLLIN));
                ids.push(*id);
                if !link.attached {
                    patience = 1000;
                }
            }
        }
        if sys::poll(&mut wanted, patience).is_err() {
            return;
        }
        let ready = |number: usize| wanted.get(number).is_some_and(|wanted| wanted.revents != 0);
        if ready(0) {
            sys::drain(wake);
        }
        let mut inner = shared.lock();
        for (number, id) in ids.iter().enumerate() {
            // What it said before it ended counts.
            if ready(2 + 2 * number) {
                inner.hear(*id);
            }
            if let Some(link) = inner.links.get_mut(id) {
                link.dead |= ready(3 + 2 * number);
                link.dead |= !link.attached && link.since.elapsed() > ATTACH_TIMEOUT;
                link.flush();
            }
        }
        if ready(1) {
            inner.accept(&listener);
        }
        inner.sweep();
        if inner.record_due {
            inner.write_record();
        }
        drop(inner);
        shared.notify();
    }
}

impl Inner {
    fn accept(&mut self, listener: &Descriptor) {
        while self.links.len() < MAX_CONNECTIONS
            && let Ok(Some(socket)) = sys::accept(listener.raw())
        {
            // The folder keeps others out already.
            if let Ok(peer) = sys::peer(socket.as_raw_fd())
                && peer.uid == sys::user()
            {
                self.made += 1;
                self.links.insert(self.made, Link::new(socket, peer));
            }
        }
    }

    /// Takes what a consumer says. What is malformed ends its connection.
    fn hear(&mut self, id: u64) {
        let mut buffer = [0u8; message::MAX_BYTES];
        loop {
            let Some(link) = self.links.get_mut(&id).filter(|link| !link.dead && !link.closing) else {
                return;
            };
            let received = match sys::receive(link.socket.raw(), &mut buffer) {
                Ok(received) => received,
                Err(error) if sys::again(&error) => break,
                Err(_) => {
                    link.dead = true;
                    return;
                }
            };
            if received.bytes == 0 && !received.truncated {
                link.dead = true;
                return;
            }
            let sound = !received.truncated && received.descriptor.is_none();
            let request = Request::decode(buffer.get(..received.bytes).unwrap_or_default());
            let taken = sound && request.is_ok_and(|request| self.take(id, request));
            if !taken {
                self.malformed();
                if let Some(link) = self.links.get_mut(&id) {
                    link.dead = true;
                }
                return;
            }
        }
        self.pump(id);
    }

    /// Does what a consumer asks for; false if it may not.
    fn take(&mut self, id: u64, request: Request) -> bool {
        let attached = self.links.get(&id).is_some_and(|link| link.attached);
        match request {
            Request::Hello { .. } if !attached => self.greet(id, request),
            Request::Want if attached => self.ring.want(id),
            Request::Release { lease } if attached => return self.ring.release(id, lease),
            Request::Skip { epoch } if attached => self.ring.skip(id, epoch),
            _ => return false,
        }
        true
    }

    fn greet(&mut self, id: u64, request: Request) {
        let Request::Hello { version, session, start, slow, window } = request else { return };
        let slow = slow.unwrap_or(self.config.slow);
        let refusal = if version != VERSION {
            Some((Refusal::Version, "the producer has another version of RADRM"))
        } else if session != [0; 16] && session != self.session {
            Some((
                Refusal::Session,
                "another producer runs under this name now, not the restart of the former one",
            ))
        } else if self.ring.members() >= MAX_CONSUMERS {
            Some((Refusal::Full, "the producer has 64 consumers already"))
        } else if slow == Slow::Spill && self.gpu.is_some() {
            Some((Refusal::Spill, NO_SPILL))
        } else if self.ended {
            Some((Refusal::Gone, "the producer has ended"))
        } else {
            match self.ring.join(id, start, slow, window.into()) {
                Ok(()) => None,
                Err(Denied::Gone) => Some((Refusal::Gone, "the batch to resume with is not there any more")),
                Err(Denied::Order) => Some((Refusal::Order, OTHER_ORDER)),
            }
        };
        let (batches, samples) = (self.config.batches, self.config.samples);
        let gpu = self.gpu.as_ref().map_or(NO_GPU, |gpu| gpu.uuid());
        let welcome = Reply::Welcome { session: self.session, batches, samples, slow, gpu };
        let Some(link) = self.links.get_mut(&id) else { return };
        if let Some((code, text)) = refusal {
            link.refuse(code, text);
            link.flush();
            return;
        }
        link.attached = true;
        let who = (link.pid, link.start);
        // Without a bell a consumer sleeps on its socket.
        link.bell = Bell::new().ok().map(Arc::new);
        link.say(&welcome, link.bell.clone().map(Attached::Bell));
        if let Some(found) = self.expected.iter().position(|expected| *expected == who) {
            self.expected.swap_remove(found);
        }
        self.write_record();
    }
}
