//! Events: rare things worth knowing, in the ring.

use crate::gpu_index::GpuIndex;
use crate::kind::EventKind;
use crate::ring::WORDS;
use radrm_base::Kind;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the event, ns of segment time.
    pub ns: u64,
    /// Kind of event.
    pub kind: EventKind,
    /// On which GPU, if on one.
    pub gpu: Option<GpuIndex>,
    /// Kind of memory, if that means something here.
    pub memory: Option<Kind>,
    /// Number of the entry point; `u16::MAX` = none.
    pub entry: u16,
    /// Thread.
    pub tid: u32,
    /// See [`EventKind`].
    pub a: u64,
    /// See [`EventKind`].
    pub b: u64,
    /// See [`EventKind`].
    pub c: u64,
    /// See [`EventKind`].
    pub d: u64,
}

impl Event {
    /// An event with nothing but its kind and time.
    pub const fn new(kind: EventKind, ns: u64) -> Self {
        Self { ns, kind, gpu: None, memory: None, entry: u16::MAX, tid: 0, a: 0, b: 0, c: 0, d: 0 }
    }

    pub(crate) fn pack(&self) -> [u64; WORDS] {
        let gpu = self.gpu.map_or(0xff, |gpu| u64::from(gpu.number()));
        let memory = self.memory.map_or(0xff, |kind| kind as u64);
        let what = self.kind as u64 | gpu << 8 | memory << 16 | u64::from(self.entry) << 24;
        [self.ns, what, self.tid.into(), self.a, self.b, self.c, self.d]
    }

    pub(crate) fn unpack(words: [u64; WORDS]) -> Option<Self> {
        let [ns, what, tid, a, b, c, d] = words;
        Some(Self {
            ns,
            kind: EventKind::from_raw(what as u8)?,
            gpu: GpuIndex::from_number((what >> 8) as usize & 0xff),
            memory: Kind::from_raw((what >> 16) as u8),
            entry: (what >> 24) as u16,
            tid: tid as u32,
            a,
            b,
            c,
            d,
        })
    }
}
