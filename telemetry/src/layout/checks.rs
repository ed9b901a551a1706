//! Sizes and offsets that do not change with the compiler.

use super::*;

const _: () = {
    assert!(size_of::<Cell>() == 64);
    assert!(size_of::<GpuCell>() == 256);
    assert!(size_of::<DirEntry>() == 32);
    assert!(size_of::<Header>() == PAGE);
    assert!(std::mem::offset_of!(Header, budget).is_multiple_of(64));
    assert!(size_of::<HeaderArea>() == HEADER_BYTES as usize);
    assert!(std::mem::offset_of!(HeaderArea, gpus) == GPUS_AT as usize);
    assert!(std::mem::offset_of!(HeaderArea, directory) == DIRECTORY_AT as usize);
    assert!(size_of::<TimelineBucket>() == 128);
    assert!(size_of::<ClockCell>() == 64);
    assert!(size_of::<SlotHead>() == 4096);
    assert!(size_of::<SlotBase>() == BASE_BYTES as usize);
    assert!(size_of::<KernelCell>() == 64);
    assert!(size_of::<LaneRow>() == 64);
    assert!(size_of::<BlockBucket>() == 256);
    assert!(BASE_BYTES <= HASHES_AT && BASE_BYTES.is_multiple_of(PAGE as u64));
    assert!(KERNELS_AT + KERNELS_BYTES <= NAMES_AT);
    assert!(NAMES_AT + NAMES_BYTES <= LANES_AT);
    assert!(size_of::<StratumCell>() == 128);
    assert!(LANES_AT + (LANES as u64 + 1) * LANE_BYTES <= STRATA_KEYS_AT);
    assert!(STRATA_AT + STRATA_BYTES <= SAMPLES_AT);
    assert!(SAMPLES_AT + SAMPLES_BYTES <= TIMELINES_AT);
    assert!(TIMELINES_AT + GPUS as u64 * TIMELINE_BYTES <= LEVELS_AT);
    assert!(HEADER_BYTES <= LEDGER_AT && LEDGER_AT < SLOTS_AT);
    assert!(LEDGER_AT.is_multiple_of(MAX_PAGE as u64) && SLOTS_AT.is_multiple_of(MAX_PAGE as u64));
    assert!(SLOT_STRIDE.is_multiple_of(MAX_PAGE as u64));
};
