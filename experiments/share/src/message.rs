//! Messages over the socket in both directions: one packet each, little-endian, of a length that its kind fixes.

use crate::ring::{Position, Slow};

/// Version of the protocol; both sides must have the same.
pub const VERSION: u16 = 2;

/// Bytes of the longest packet.
pub const MAX_BYTES: usize = 1024;

/// Bytes of the longest text in a packet.
const MAX_TEXT: usize = 768;

/// A number that stands for none.
pub const UNKNOWN: u64 = u64::MAX;

/// Identifies a GPU, or a part of one, on a machine.
pub type Uuid = [u8; 16];

/// No GPU.
pub const NO_GPU: Uuid = [0; 16];

/// Reason that a packet is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadMessage {
    /// Its kind is unknown.
    #[error("unknown kind {0}")]
    Kind(u8),
    /// It is shorter or longer than its kind.
    #[error("wrong length")]
    Length,
    /// A value in it is not one of those that are defined.
    #[error("a value is not defined")]
    Value,
    /// Not UTF-8.
    #[error("a text is not UTF-8")]
    Text,
    /// A descriptor is missing, or came where none belongs.
    #[error("a descriptor is missing or too many")]
    Descriptor,
    /// It does not fit what was said before.
    #[error("out of order")]
    Order,
}

/// Position at which a consumer wants to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// With the first batch of an epoch: of the running one if it is still there, else of the next.
    Epoch,
    /// With the oldest batch that is still there.
    Now,
    /// With this batch, where it stopped before. `order` is the digest of the order of the samples in front of it in its
    /// epoch, 0 if not known.
    At {
        /// The batch.
        position: Position,
        /// Digest of the order in front of it.
        order: u64,
    },
}

/// From a consumer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// The first packet of a connection.
    Hello {
        /// Version of the protocol.
        version: u16,
        /// The producer that it was attached to before, which may have been another process; zeros for none.
        session: [u8; 16],
        /// Position to begin at.
        start: Start,
        /// Policy if the consumer is slow; none for the producer's default.
        slow: Option<Slow>,
        /// Batches that it keeps at once, at least 2.
        window: u8,
    },
    /// It wants one more batch; only of those that are dropped or spilled when slow.
    Want,
    /// It has released a batch.
    Release {
        /// The lease's number.
        lease: u64,
    },
    /// It wants nothing more of this epoch.
    Skip {
        /// The epoch.
        epoch: u64,
    },
}

/// Reason that a consumer is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Refusal {
    /// Another version of the protocol.
    Version = 1,
    /// Too many consumers.
    Full = 2,
    /// The batch that it wants to begin with is gone.
    Gone = 3,
    /// The loader gives its samples in another order than before.
    Order = 4,
    /// The producer is not the one that it was attached to, nor its restart.
    Session = 5,
    /// Batches on a GPU are not written to disk.
    Spill = 6,
}

/// From the producer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The consumer is attached. With the descriptor of the word that it sleeps on, if there is one.
    Welcome {
        /// The producer, also over its restarts.
        session: [u8; 16],
        /// Batches of an epoch, or [`UNKNOWN`].
        batches: u64,
        /// Samples of an epoch, or [`UNKNOWN`].
        samples: u64,
        /// Policy if the consumer is slow.
        slow: Slow,
        /// The GPU that batches lie on, or [`NO_GPU`].
        gpu: Uuid,
    },
    /// The consumer is not attached, or not any more.
    Refused {
        /// A [`Refusal`].
        code: u16,
        /// In words.
        text: String,
    },
    /// Memory that batches lie in. With its descriptor.
    Region {
        /// Its number.
        region: u64,
        /// Its size.
        bytes: u64,
    },
    /// The same memory's part on the GPU. With its descriptor.
    Gpu {
        /// The memory's number.
        region: u64,
        /// Its size.
        bytes: u64,
    },
    /// Memory that no batch lies in any more.
    Forget {
        /// Its number.
        region: u64,
    },
    /// A batch, leased until it is released.
    Batch(Batch),
    /// All batches of the epoch were sent.
    EpochEnd {
        /// The epoch.
        epoch: u64,
        /// Its batches.
        batches: u64,
    },
    /// Batches were dropped in front of the next one.
    Dropped {
        /// Number of batches.
        batches: u64,
    },
    /// The producer has ended as it should.
    End,
    /// The loader raised an exception.
    Failed {
        /// In words.
        text: String,
    },
}

/// A batch in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Number of the lease.
    pub lease: u64,
    /// The memory that it lies in.
    pub region: u64,
    /// Position of the batch: its epoch, and its index there.
    pub position: Position,
    /// Content of the batch.
    pub info: Info,
}

/// Content of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Info {
    /// Its samples, 0 if not known.
    pub samples: u64,
    /// Digest of the order of the epoch's samples in front of it; 0 if not known.
    pub before: u64,
    /// The same, with its own samples.
    pub after: u64,
    /// Bytes of data, from the memory's beginning.
    pub data: u64,
    /// Bytes of the description after it.
    pub description: u64,
    /// Bytes of data on the GPU, from its memory's beginning.
    pub gpu: u64,
}

struct Writer(Vec<u8>);

impl Writer {
    fn new(kind: u8) -> Self {
        Self(vec![kind])
    }

    fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    fn longs(mut self, values: &[u64]) -> Self {
        for value in values {
            self.0.extend(value.to_le_bytes());
        }
        self
    }

    fn short(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn text(self, text: &str) -> Self {
        self.raw(&text.as_bytes()[..text.floor_char_boundary(MAX_TEXT)])
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], BadMessage> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(BadMessage::Length)?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn byte(&mut self) -> Result<u8, BadMessage> {
        Ok(u8::from_le_bytes(self.fixed()?))
    }

    fn short(&mut self) -> Result<u16, BadMessage> {
        Ok(u16::from_le_bytes(self.fixed()?))
    }

    fn long(&mut self) -> Result<u64, BadMessage> {
        Ok(u64::from_le_bytes(self.fixed()?))
    }

    fn position(&mut self) -> Result<Position, BadMessage> {
        Ok(Position { epoch: self.long()?, index: self.long()? })
    }

    fn text(&mut self) -> Result<String, BadMessage> {
        let bytes = std::mem::take(&mut self.0);
        if bytes.len() > MAX_TEXT {
            return Err(BadMessage::Length);
        }
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| BadMessage::Text)
    }

    fn end<T>(self, value: T) -> Result<T, BadMessage> {
        if self.0.is_empty() { Ok(value) } else { Err(BadMessage::Length) }
    }
}

fn slow(code: u8) -> Result<Slow, BadMessage> {
    match code {
        1 => Ok(Slow::Wait),
        2 => Ok(Slow::Drop),
        3 => Ok(Slow::Spill),
        _ => Err(BadMessage::Value),
    }
}

impl Request {
    /// As a packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello { version, session, start, slow, window } => {
                let (kind, position, order) = match *start {
                    Start::Epoch => (0, Position::default(), 0),
                    Start::Now => (1, Position::default(), 0),
                    Start::At { position, order } => (2, position, order),
                };
                let slow = slow.map_or(0, |slow| slow as u8);
                Writer::new(1)
                    .short(*version)
                    .raw(session)
                    .byte(kind)
                    .longs(&[position.epoch, position.index, order])
                    .byte(slow)
                    .byte(*window)
                    .0
            }
            Self::Want => Writer::new(2).0,
            Self::Release { lease } => Writer::new(3).longs(&[*lease]).0,
            Self::Skip { epoch } => Writer::new(4).longs(&[*epoch]).0,
        }
    }

    /// From a packet.
    ///
    /// # Errors
    /// It is not exactly one request.
    pub fn decode(packet: &[u8]) -> Result<Self, BadMessage> {
        let mut reader = Reader(packet);
        let request = match reader.byte()? {
            1 => {
                let (version, session) = (reader.short()?, reader.fixed()?);
                let (kind, position, order) = (reader.byte()?, reader.position()?, reader.long()?);
                let start = match kind {
                    0 => Start::Epoch,
                    1 => Start::Now,
                    2 => Start::At { position, order },
                    _ => return Err(BadMessage::Value),
                };
                let chosen = match reader.byte()? {
                    0 => None,
                    code => Some(slow(code)?),
                };
                let window = reader.byte()?;
                if !(2..=64).contains(&window) {
                    return Err(BadMessage::Value);
                }
                Self::Hello { version, session, start, slow: chosen, window }
            }
            2 => Self::Want,
            3 => Self::Release { lease: reader.long()? },
            4 => Self::Skip { epoch: reader.long()? },
            kind => return Err(BadMessage::Kind(kind)),
        };
        reader.end(request)
    }
}

impl Reply {
    /// As a packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome { session, batches, samples, slow, gpu } => {
                Writer::new(65).raw(session).longs(&[*batches, *samples]).byte(*slow as u8).raw(gpu).0
            }
            Self::Refused { code, text } => Writer::new(66).short(*code).text(text).0,
            Self::Region { region, bytes } => Writer::new(67).longs(&[*region, *bytes]).0,
            Self::Forget { region } => Writer::new(68).longs(&[*region]).0,
            Self::Batch(Batch { lease, region, position, info }) => {
                let Info { samples, before, after, data, description, gpu } = *info;
                let own = [*lease, *region, position.epoch, position.index];
                Writer::new(69).longs(&own).longs(&[samples, before, after, data, description, gpu]).0
            }
            Self::EpochEnd { epoch, batches } => Writer::new(70).longs(&[*epoch, *batches]).0,
            Self::Dropped { batches } => Writer::new(71).longs(&[*batches]).0,
            Self::End => Writer::new(72).0,
            Self::Failed { text } => Writer::new(73).text(text).0,
            Self::Gpu { region, bytes } => Writer::new(74).longs(&[*region, *bytes]).0,
        }
    }

    /// From a packet.
    ///
    /// # Errors
    /// It is not exactly one reply.
    pub fn decode(packet: &[u8]) -> Result<Self, BadMessage> {
        let mut reader = Reader(packet);
        let reply = match reader.byte()? {
            65 => {
                let session = reader.fixed()?;
                let (batches, samples) = (reader.long()?, reader.long()?);
                let slow = slow(reader.byte()?)?;
                Self::Welcome { session, batches, samples, slow, gpu: reader.fixed()? }
            }
            66 => Self::Refused { code: reader.short()?, text: reader.text()? },
            67 => Self::Region { region: reader.long()?, bytes: reader.long()? },
            68 => Self::Forget { region: reader.long()? },
            69 => Self::Batch(Batch {
                lease: reader.long()?,
                region: reader.long()?,
                position: reader.position()?,
                info: Info {
                    samples: reader.long()?,
                    before: reader.long()?,
                    after: reader.long()?,
                    data: reader.long()?,
                    description: reader.long()?,
                    gpu: reader.long()?,
                },
            }),
            70 => Self::EpochEnd { epoch: reader.long()?, batches: reader.long()? },
            71 => Self::Dropped { batches: reader.long()? },
            72 => Self::End,
            73 => Self::Failed { text: reader.text()? },
            74 => Self::Gpu { region: reader.long()?, bytes: reader.long()? },
            kind => return Err(BadMessage::Kind(kind)),
        };
        reader.end(reply)
    }
}

#[cfg(test)]
mod tests;
