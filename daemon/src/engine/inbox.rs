//! Messages to the engine, in the order in which it handles them.
//!
//! Events and new jobs come before questions, and these are answered for a bounded time between two polls: however
//! much is asked, and however long the answers are, jobs are started and ended in time. Users are answered
//! round-robin.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use radrm_protocol::wire::Request;

use crate::message::Message;

/// The most messages that are handled at once, new jobs among them with one write.
const BATCH: usize = 512;
/// Questions are answered for so long, and one more is begun with nothing of that left.
const ANSWERING: Duration = Duration::from_millis(20);

/// The user of a request; `None` is `/metrics`.
type Asker = Option<u32>;

pub(super) struct Inbox<'a> {
    from: &'a Receiver<Message>,
    /// Messages that are handled first in the next round.
    put_back: Vec<Message>,
    asked: BTreeMap<Asker, VecDeque<Message>>,
    last: Asker,
}

impl<'a> Inbox<'a> {
    pub(super) fn new(from: &'a Receiver<Message>) -> Self {
        Self { from, put_back: Vec::new(), asked: BTreeMap::new(), last: None }
    }

    /// Waits for so long, unless questions are left; gives all that comes before them. `None`: no sender is left.
    pub(super) fn wait(&mut self, patience: Duration) -> Option<Vec<Message>> {
        let is_idle = self.asked.is_empty() && self.put_back.is_empty();
        let patience = if is_idle { patience } else { Duration::ZERO };
        let mut first = std::mem::take(&mut self.put_back);
        match self.from.recv_timeout(patience) {
            Ok(message) => self.sort(message, &mut first),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) if first.is_empty() => return None,
            Err(RecvTimeoutError::Disconnected) => {}
        }
        for message in self.from.try_iter().take(BATCH - 1) {
            self.sort(message, &mut first);
        }
        Some(first)
    }

    /// Keeps a message for the next round, before all that come later.
    pub(super) fn put_back(&mut self, message: Message) {
        self.put_back.push(message);
    }

    fn sort(&mut self, message: Message, first: &mut Vec<Message>) {
        match &message {
            Message::Asked(_, Request::Submit(_) | Request::SubmitTogether(_), _) => first.push(message),
            Message::Asked(peer, ..)
            | Message::AskedOf(peer, ..)
            | Message::Listed(peer, ..)
            | Message::Rows(peer, ..)
            | Message::Read(peer, ..) => {
                self.asked.entry(Some(peer.uid)).or_default().push_back(message);
            }
            Message::Metrics(_) => self.asked.entry(None).or_default().push_back(message),
            _ => first.push(message),
        }
    }

    /// Has questions answered, at least one, until the time for that is over or none is left.
    pub(super) fn answer(&mut self, mut with: impl FnMut(Message)) {
        let begun = Instant::now();
        while let Some(message) = self.next() {
            with(message);
            if begun.elapsed() >= ANSWERING {
                return;
            }
        }
    }

    /// A question of the user who comes after the one who asked last.
    fn next(&mut self) -> Option<Message> {
        let behind = (Bound::Excluded(self.last), Bound::Unbounded);
        let asker = *self.asked.range(behind).next().or_else(|| self.asked.first_key_value())?.0;
        self.last = asker;
        let own = self.asked.get_mut(&asker)?;
        let message = own.pop_front();
        if own.is_empty() {
            self.asked.remove(&asker);
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Peer;
    use std::sync::mpsc::channel;

    use crate::limited_groups::Groups;

    fn asks(uid: u32, request: Request) -> Message {
        let peer = Peer { uid, gid: uid, name: "u".into(), groups: Groups::default(), admin: false };
        Message::Asked(peer, request, channel().0)
    }

    fn uid(message: &Message) -> u32 {
        match message {
            Message::Asked(peer, ..) => peer.uid,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn heavy_questions_hold_up_neither_what_happens_nor_another_user() {
        let (to, from) = channel();
        let mut inbox = Inbox::new(&from);
        for _ in 0..100 {
            to.send(asks(7, Request::Queue { all: false, ended: 10_000, merge: false, first: 0 })).unwrap();
        }
        to.send(asks(8, Request::Nodes)).unwrap();
        to.send(asks(7, Request::Submit(Box::default()))).unwrap();
        to.send(Message::SupervisorEnded((1, 1))).unwrap();
        let first = inbox.wait(Duration::from_secs(60)).unwrap();
        assert!(
            matches!(
                &first[..],
                [Message::Asked(_, Request::Submit(_), _), Message::SupervisorEnded((1, 1))]
            ),
            "{first:?}"
        );
        let round = |inbox: &mut Inbox<'_>| {
            let mut answered = Vec::new();
            inbox.answer(|message| {
                answered.push(uid(&message));
                std::thread::sleep(ANSWERING);
            });
            answered
        };
        assert_eq!(round(&mut inbox), [7], "one that takes all the time is alone in its round");
        // There is no waiting for something to happen while questions are left.
        to.send(Message::Stop).unwrap();
        let first = inbox.wait(Duration::from_secs(60)).unwrap();
        assert!(matches!(&first[..], [Message::Stop]), "{first:?}");
        assert_eq!(round(&mut inbox), [8], "users are answered round-robin");
        assert!(inbox.wait(Duration::from_secs(60)).unwrap().is_empty());
        let mut rest = 0;
        while !inbox.asked.is_empty() {
            inbox.answer(|_| rest += 1);
        }
        assert_eq!(rest, 99, "none is lost");
        drop(to);
        assert!(inbox.wait(Duration::from_secs(60)).is_none());
    }
}
