//! The segment's figures and blocks, in the terms of this module's hooks. Nothing else here writes them.
//!
//! A block is entered before its bytes are charged and taken out before they are discharged: a process
//! that is killed in between leaves figures that differ from the driver's by the one call in flight.

use radrm_cuda_abi::*;

use super::level::Caller;
use crate::cx::Cx;
use crate::stacks;
use crate::telemetry::{self, BlockKey, Bypass, Event, EventKind, GpuIndex, Kind, SiteId};

/// Blocks from this size on are worth an event of their own. Smaller ones come and go too often for that:
/// the timeline has them, and an event would be a quarter of what their accounting costs.
const MIN_EVENT_BYTES: u64 = 64 << 20;

/// One live block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) struct Block {
    /// The GPU that is charged.
    pub(super) gpu: GpuIndex,
    /// Kind that it is charged as.
    pub(super) kind: Kind,
    /// Bytes charged.
    pub(super) bytes: u64,
    /// Bits of the context that owns the block, or its pool's token; 0 where nothing does.
    pub(super) owner: u64,
    /// Call site of the request.
    site: SiteId,
}

/// Bits of [`telemetry::Block::aux`] that the owner has: addresses and tokens have no more. The site has the rest.
const OWNER_BITS: u32 = 48;

impl Block {
    /// A block that is not entered yet.
    pub(super) const fn new(gpu: GpuIndex, kind: Kind, bytes: u64, owner: u64) -> Self {
        Self { gpu, kind, bytes, owner, site: SiteId::NONE }
    }

    fn entry(self, ns: u64) -> telemetry::Block {
        let aux = owner_bits(self.owner) | u64::from(self.site.number()) << OWNER_BITS;
        telemetry::Block { bytes: self.bytes, kind: self.kind, gpu: self.gpu, ns, aux }
    }

    fn of(entry: telemetry::Block) -> Self {
        let telemetry::Block { bytes, kind, gpu, aux, .. } = entry;
        Self { gpu, kind, bytes, owner: owner_bits(aux), site: SiteId::from_number(aux >> OWNER_BITS) }
    }
}

fn owner_bits(aux: u64) -> u64 {
    aux & ((1 << OWNER_BITS) - 1)
}

/// Enters a new block and charges it. False: the table has no room, and nothing was charged.
#[inline(always)]
pub(super) fn add(cx: &Cx<'_>, key: BlockKey, block: Block) -> bool {
    if cx.writer().records_stacks() { add_at_site(cx, key, block) } else { enter(cx, key, block) }
}

/// Apart from [`add`], which pays nothing for call stacks where none are recorded.
#[inline(never)]
fn add_at_site(cx: &Cx<'_>, key: BlockKey, block: Block) -> bool {
    recover(cx);
    pending::note(cx, key, block);
    let site = stacks::site(cx, block.gpu, block.kind, block.bytes);
    // A handler of a signal that asked for memory meanwhile has entered it.
    pending::take(cx).is_none() || enter(cx, key, Block { site, ..block })
}

/// Enters the block of a call that the thread left by a jump while its stack was read: the driver has handed it out.
#[cold]
#[inline(never)]
pub(crate) fn recover(cx: &Cx<'_>) {
    if let Some((key, block)) = pending::take(cx) {
        enter(cx, key, Block { site: SiteId::other(block.gpu, block.kind), ..block });
    }
}

/// The block whose stack the thread reads: a handler of a signal that interrupts the reading may never return.
mod pending {
    use core::sync::atomic::{Ordering, compiler_fence};

    use super::{Block, BlockKey};
    use crate::cx::Cx;
    use crate::telemetry;

    // Words of the thread's state, behind those of `place`.
    const KEY: usize = 8;
    const WHAT: usize = 9;
    const AUX: usize = 10;

    pub(super) fn note(cx: &Cx<'_>, key: BlockKey, block: Block) {
        let entry = block.entry(0);
        let words = &cx.tls().memory;
        // The key comes last: a handler on this thread that sees it sees the rest.
        for (at, word) in [(WHAT, entry.pack()), (AUX, entry.aux), (KEY, key.raw())] {
            compiler_fence(Ordering::Release);
            if let Some(cell) = words.get(at) {
                cell.set(word);
            }
        }
    }

    pub(super) fn take(cx: &Cx<'_>) -> Option<(BlockKey, Block)> {
        let word = |at: usize| cx.tls().memory.get(at).map_or(0, core::cell::Cell::get);
        let key = BlockKey::from_raw(word(KEY))?;
        let block = telemetry::Block::unpack(word(WHAT), 0, word(AUX));
        cx.tls().memory.get(KEY)?.set(0);
        Some((key, Block::of(block?)))
    }
}

#[inline(always)]
fn enter(cx: &Cx<'_>, key: BlockKey, block: Block) -> bool {
    let writer = cx.writer();
    let now = writer.now();
    if !writer.blocks().insert_home(key, &block.entry(now)) && !enter_away(cx, key, block, now) {
        return false;
    }
    writer.charge_by(cx.tls().counts.get(), block.site, block.gpu, block.kind, block.bytes, now);
    if block.bytes >= MIN_EVENT_BYTES {
        large(cx, EventKind::LargeAlloc, key, block, now);
    }
    true
}

/// Enters a block that does not find its place at once. False: the table has no room.
#[inline(never)]
fn enter_away(cx: &Cx<'_>, key: BlockKey, block: Block, now: u64) -> bool {
    match cx.writer().blocks().insert_away(key, &block.entry(now)) {
        telemetry::Inserted::New => true,
        // The driver has handed out what is still in the table: its end was not seen.
        telemetry::Inserted::Replaced(stale) => {
            cx.bypass(Bypass::BlockReplaced);
            discharge(cx, key, Block::of(stale));
            true
        }
        telemetry::Inserted::Full => {
            cx.bypass(Bypass::BlockTableFull);
            false
        }
    }
}

#[cold]
#[inline(never)]
fn large(cx: &Cx<'_>, kind: EventKind, key: BlockKey, block: Block, ns: u64) {
    let (gpu, memory) = (Some(block.gpu), Some(block.kind));
    let (entry, a, b) = (cx.entry.table_id(), key.value(), block.bytes);
    cx.writer().event(&Event { gpu, memory, entry, a, b, ..Event::new(kind, ns) });
}

/// Takes a block out of the table; it stays charged until [`discharge`] or [`put_back`].
#[inline(always)]
pub(super) fn take(cx: &Cx<'_>, key: BlockKey) -> Option<Block> {
    cx.writer().blocks().remove(key).map(Block::of)
}

/// Returns true if a block is in the table.
pub(super) fn knows(cx: &Cx<'_>, key: BlockKey) -> bool {
    cx.writer().blocks().get(key).is_some()
}

/// Enters a block again whose release the driver refused.
#[cold]
#[inline(never)]
pub(super) fn put_back(cx: &Cx<'_>, key: BlockKey, block: Block) {
    let now = cx.writer().now();
    if let telemetry::Inserted::Full = cx.writer().blocks().insert(key, &block.entry(now)) {
        cx.bypass(Bypass::BlockTableFull);
        // Its end will not be seen. The memory is still held: a quota counts it on.
        cx.writer().discharge_by(cx.tls().counts.get(), block.site, block.gpu, block.kind, block.bytes, now);
    }
}

/// Discharges a block that was taken out.
#[inline(never)]
pub(super) fn discharge(cx: &Cx<'_>, key: BlockKey, block: Block) {
    discharge_hot(cx, key, block);
}

/// As [`discharge`], laid into its caller: for calls that programs make by the thousand.
#[inline(always)]
pub(super) fn discharge_hot(cx: &Cx<'_>, key: BlockKey, block: Block) {
    let writer = cx.writer();
    let now = writer.now();
    writer.discharge_by(cx.tls().counts.get(), block.site, block.gpu, block.kind, block.bytes, now);
    if cx.page.quota.is_on() && block.kind.in_quota() {
        release(cx, block.gpu, block.bytes);
    }
    if block.bytes >= MIN_EVENT_BYTES {
        large(cx, EventKind::LargeFree, key, block, now);
    }
}

/// Apart from [`discharge`], which pays nothing for quotas where there are none.
#[inline(never)]
fn release(cx: &Cx<'_>, gpu: GpuIndex, bytes: u64) {
    cx.page.quota.release(gpu, bytes);
}

/// Runs a call that releases the block of `key`.
pub(super) fn around(cx: &Cx<'_>, key: BlockKey, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(block) = take(cx, key) else { return unknown_free(cx, call()) };
    let result = call();
    if result.is_ok() {
        discharge(cx, key, block);
    } else {
        put_back(cx, key, block);
    }
    result
}

/// Drops every block that a context owned.
pub(super) fn drop_owned(cx: &Cx<'_>, context: u64) {
    drop_where(
        cx,
        |_, block| owner_bits(block.aux) == owner_bits(context) && block.kind != Kind::PoolUsed,
        |_| {},
    );
}

/// Drops those blocks of a pool at whose address `is_gone`; `dropped` gets the bytes of each.
pub(super) fn drop_pooled(
    cx: &Cx<'_>,
    token: u64,
    kind: Kind,
    is_gone: impl Fn(u64) -> bool,
    dropped: impl Fn(u64),
) {
    drop_where(
        cx,
        |key, block| owner_bits(block.aux) == token && block.kind == kind && is_gone(key.value()),
        dropped,
    );
}

fn drop_where(cx: &Cx<'_>, is_gone: impl Fn(BlockKey, &telemetry::Block) -> bool, dropped: impl Fn(u64)) {
    cx.writer().blocks().remove_where(is_gone, |key, block| {
        discharge(cx, key, Block::of(block));
        dropped(block.bytes);
    });
}

/// Adds to an amount that the driver reports.
pub(super) fn raise(cx: &Cx<'_>, gpu: GpuIndex, kind: Kind, caller: Caller, bytes: u64) {
    let writer = cx.writer();
    cx.page.quota.add(gpu, bytes);
    let has_site = caller == Caller::Asked && writer.records_stacks();
    let site = if has_site { stacks::site(cx, gpu, kind, bytes) } else { SiteId::NONE };
    writer.raise_level_from(site, gpu, kind, bytes, writer.now());
}

/// Takes from an amount that the driver reports.
pub(super) fn lower(cx: &Cx<'_>, gpu: GpuIndex, kind: Kind, bytes: u64) {
    let writer = cx.writer();
    writer.lower_level(gpu, kind, bytes, writer.now());
    cx.page.quota.release(gpu, bytes);
}

/// A release of something that is not in the table. Only one that the driver accepted says that a block
/// was missed: what it refuses never was one.
#[cold]
#[inline(never)]
pub(super) fn unknown_free(cx: &Cx<'_>, result: CUresult) -> CUresult {
    if result.is_ok() {
        cx.bypass(Bypass::UnknownBlock);
    }
    result
}

/// A block that no GPU could be found for.
#[cold]
#[inline(never)]
pub(super) fn unplaced(cx: &Cx<'_>) {
    cx.bypass(Bypass::NoContext);
}

/// Counts a call that shows how the program uses memory: that it shares it, or has it migrate.
pub(super) fn seen(cx: &Cx<'_>) {
    cx.writer().call(cx.entry.table_id());
}

/// Notes that a pool came or went.
pub(super) fn pool_event(cx: &Cx<'_>, kind: EventKind, pool: CUmemoryPool) {
    let writer = cx.writer();
    writer.event(&Event { entry: cx.entry.table_id(), a: pool.addr(), ..Event::new(kind, writer.now()) });
}
