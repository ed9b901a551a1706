//! Random content and random files.

mod common;

use common::*;
use proptest::prelude::*;
use radrm_profile::frame;
use radrm_profile::model::*;
use radrm_profile::*;

fn word() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..10u64, any::<u64>(), Just(u64::MAX)]
}

fn points() -> impl Strategy<Value = Vec<TimelinePoint>> {
    let kinds = || proptest::array::uniform9(word().prop_map(Bytes));
    let point = (word(), word(), word(), kinds(), kinds()).prop_map(|(t, span, max, at_max, last)| {
        TimelinePoint { t: Nanos(t), span: Nanos(span), max_total: Bytes(max), at_max, last }
    });
    proptest::collection::vec(point, 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_timeline_comes_back(points in points()) {
        let chunk = TimelineChunk { gpu: GpuIndex(3), points };
        let delta = ProcessDelta { timelines: vec![chunk], ..ProcessDelta::default() };
        let record = Record::State(State { processes: vec![delta], ..State::default() });
        let (bytes, _) = file(std::slice::from_ref(&record));
        prop_assert_eq!(read_bytes(&bytes).unwrap(), profile(&[record]));
    }

    #[test]
    fn any_payload_with_a_right_checksum_is_survived(kind in 1u32..25, payload: Vec<u8>) {
        let (mut bytes, _) = file(&[]);
        bytes.extend_from_slice(&frame::frame(kind, &payload));
        let _ = read_bytes(&bytes).unwrap();
    }

    #[test]
    fn a_damaged_payload_with_a_right_checksum_is_survived(at: prop::sample::Index, value: u8, which in 0usize..records().len()) {
        // Checksums guard against accidents, not against intent.
        let (bytes, ends) = file(&records());
        let (start, end) = (ends[which] + frame::FRAME_HEAD_BYTES, ends[which + 1]);
        let mut payload = bytes[start..end].to_vec();
        let at = at.index(payload.len());
        payload[at] = value;
        let kind = u32::from_le_bytes(bytes[ends[which] + 4..][..4].try_into().unwrap());
        let mut forged = bytes[..ends[which]].to_vec();
        forged.extend_from_slice(&frame::frame(kind, &payload));
        forged.extend_from_slice(&bytes[end..]);
        let _ = read_bytes(&forged).unwrap();
    }

    #[test]
    fn any_file_is_survived(bytes: Vec<u8>) {
        let _ = read_bytes(&bytes);
        let mut with_head = frame::head().to_vec();
        with_head.extend_from_slice(&bytes);
        let _ = read_bytes(&with_head);
    }
}
