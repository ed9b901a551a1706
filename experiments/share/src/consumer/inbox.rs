//! Handling of received packets: a consumer maps memory, leases batches, and keeps the rest for the caller.

use std::sync::Arc;

use super::{Event, Inner, Lease, MAX_REGION, Mapped, Received};
use crate::bell::Ear;
use crate::gpu::{Gpu, GpuView};
use crate::memory::{Access, View};
use crate::message::{self, BadMessage, Batch, NO_GPU, Reply, Request};
use crate::ring::{Position, Slow};
use crate::sys::Descriptor;
use crate::{Error, description, sys};

impl Inner {
    /// Ends the connection. What it mapped is unmapped when its last batch is released.
    pub(super) fn disconnect(&mut self) {
        self.link = None;
        self.inbox.clear();
        self.mapped.clear();
    }

    /// Opens the GPU that batches lie on.
    pub(super) fn open(&mut self, uuid: message::Uuid) -> Result<(), Error> {
        if uuid == NO_GPU {
            self.gpu = None;
        } else if self.gpu.as_ref().is_none_or(|gpu| gpu.uuid() != uuid) {
            match Gpu::of_uuid(uuid) {
                Ok(gpu) => self.gpu = Some(gpu),
                Err(error) => {
                    self.disconnect();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// A packet that cannot be sent was for a producer that is gone or does not read; the next call of `next` notices.
    pub(super) fn say(&self, request: &Request) {
        if let Some(link) = &self.link {
            let _ = sys::send(link.socket.raw(), &request.encode(), None);
        }
    }

    /// Takes packets until one of them is for the caller, or none is left.
    ///
    /// A batch that has come is handed on by one system call: the producer's end is looked for only where nothing has come.
    pub(super) fn drain(&mut self, access: Access) -> Result<(), Error> {
        let Some(link) = &self.link else { return Err(Error::Died) };
        let (socket, end) = (link.socket.clone(), link.end.clone());
        self.receive(&socket, access)?;
        if !self.inbox.is_empty() {
            return Ok(());
        }
        let ended =
            end.is_some_and(|end| sys::poll(&mut [sys::wanted(end.raw(), libc::POLLIN)], 0).unwrap_or(false));
        if ended {
            // What it sent before its end has come by now.
            self.receive(&socket, access)?;
            if self.inbox.is_empty() {
                return Err(Error::Died);
            }
        }
        Ok(())
    }

    /// Receives while the inbox is empty.
    ///
    /// # Errors
    /// [`Error::Died`] at the connection's end.
    fn receive(&mut self, socket: &Descriptor, access: Access) -> Result<(), Error> {
        let mut buffer = [0u8; message::MAX_BYTES];
        while self.inbox.is_empty() {
            let received = match sys::receive(socket.raw(), &mut buffer) {
                Ok(received) if received.bytes == 0 => return Err(Error::Died),
                Ok(received) => received,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                // The producer has closed its end with packets of ours unread. Its own still come after this error.
                Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => continue,
                Err(error) => return Err(Error::System { what: "receiving", error }),
            };
            if received.truncated {
                return Err(BadMessage::Length.into());
            }
            let reply = Reply::decode(buffer.get(..received.bytes).unwrap_or_default())?;
            self.sort(reply, received.descriptor, access)?;
        }
        Ok(())
    }

    fn sort(
        &mut self,
        reply: Reply,
        descriptor: Option<std::os::fd::OwnedFd>,
        access: Access,
    ) -> Result<(), Error> {
        match (reply, descriptor) {
            (Reply::Region { region, bytes }, Some(descriptor)) => {
                if bytes > MAX_REGION || self.mapped.contains_key(&region) || self.mapped.len() > 4096 {
                    return Err(BadMessage::Value.into());
                }
                let view = Arc::new(View::new(&descriptor, bytes, access)?);
                self.mappings += 1;
                self.mapped.insert(region, Mapped { number: self.mappings, view, gpu: None });
            }
            (welcome @ Reply::Welcome { .. }, Some(descriptor)) => {
                let ear = Arc::new(Ear::new(&descriptor)?);
                if let Some(link) = &mut self.link {
                    link.ear = Some(ear);
                }
                self.inbox.push_back(welcome);
            }
            (Reply::Gpu { region, bytes }, Some(descriptor)) => {
                let (Some(gpu), Some(mapped)) = (&self.gpu, self.mapped.get_mut(&region)) else {
                    return Err(BadMessage::Order.into());
                };
                if bytes == 0 || bytes > MAX_REGION || mapped.gpu.is_some() {
                    return Err(BadMessage::Value.into());
                }
                mapped.gpu = Some(Arc::new(GpuView::new(gpu, &descriptor, bytes)?));
            }
            (Reply::Region { .. } | Reply::Gpu { .. }, None) | (_, Some(_)) => {
                return Err(BadMessage::Descriptor.into());
            }
            (Reply::Forget { region }, None) => _ = self.mapped.remove(&region),
            (reply, None) => self.inbox.push_back(reply),
        }
        Ok(())
    }

    /// Next event, if it is there.
    pub(super) fn event(&mut self) -> Result<Option<Event>, Error> {
        loop {
            let Some(reply) = self.inbox.pop_front() else {
                let slow = self.welcome.is_some_and(|welcome| welcome.slow != Slow::Wait);
                if slow && !self.wants {
                    self.wants = true;
                    self.say(&Request::Want);
                }
                return Ok(None);
            };
            match reply {
                // Of an epoch that was skipped while it was under way.
                Reply::Batch(batch) if self.position.is_some_and(|(next, _)| batch.position < next) => {
                    self.wants = false;
                    self.say(&Request::Release { lease: batch.lease });
                }
                Reply::EpochEnd { epoch, .. }
                    if self.position.is_some_and(|(next, _)| epoch < next.epoch) => {}
                Reply::Batch(batch) => {
                    self.wants = false;
                    let event = self.batch(batch)?;
                    return Ok(Some(event));
                }
                Reply::EpochEnd { epoch, batches } => {
                    self.position = Some((Position { epoch: epoch.saturating_add(1), index: 0 }, 0));
                    return Ok(Some(Event::EpochEnd(Position { epoch, index: batches })));
                }
                Reply::Dropped { batches } => self.dropped = self.dropped.saturating_add(batches),
                Reply::End => {
                    self.ended = true;
                    return Ok(Some(Event::End));
                }
                Reply::Failed { text } => return Err(Error::Failed(text)),
                Reply::Refused { code, text } => return Err(Error::Refused { code, text }),
                _ => return Err(BadMessage::Order.into()),
            }
        }
    }

    fn batch(&mut self, batch: Batch) -> Result<Event, Error> {
        let Some(Mapped { number, view, gpu }) = self.mapped.get(&batch.region) else {
            return Err(BadMessage::Order.into());
        };
        let info = batch.info;
        if info.description > description::MAX_BYTES as u64 {
            return Err(description::BadDescription::TooLong.into());
        }
        let bytes = view.copy(info.data, info.description).ok_or(description::BadDescription::Extent)?;
        if info.gpu > gpu.as_ref().map_or(0, |view| view.bytes()) {
            return Err(description::BadDescription::Extent.into());
        }
        // Most batches are described by the very same bytes.
        if bytes != *self.last || (info.data, info.gpu) != self.last_data {
            description::check(&bytes, (info.data, info.gpu), |_| {})?;
            (self.last, self.last_data) = (Arc::new(bytes), (info.data, info.gpu));
        }
        let Position { epoch, index } = batch.position;
        self.position = Some((Position { epoch, index: index.saturating_add(1) }, info.after));
        self.made += 1;
        let lease = self.made;
        let (view, gpu, region) = (view.clone(), gpu.clone(), *number);
        let received = Received {
            lease,
            start: view.start(),
            region,
            bytes: view.bytes(),
            batch,
            description: self.last.clone(),
            gpu: gpu.as_ref().map(|view| (view.address(), view.ordinal())),
        };
        let link = self.link.as_ref().map_or(0, |link| link.number);
        let used = info.data.saturating_add(info.description);
        self.leases.insert(lease, Lease { link, lease: batch.lease, view, gpu, used });
        Ok(Event::Batch(received))
    }
}
