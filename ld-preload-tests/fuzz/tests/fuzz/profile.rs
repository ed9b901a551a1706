//! Profiles: frames with damaged contents and right checksums, damaged files, and the reports of what is read of them.

#[path = "../../../../profile/tests/common/mod.rs"]
mod whole;

use bolero::check;
use radrm_analyzer::{Summary, TextOptions};
use radrm_fuzz::damaged;
use radrm_profile::{frame, read_bytes};

fn report(file: &[u8]) {
    let Ok(profile) = read_bytes(file) else { return };
    let summary = Summary::from_profile(&profile);
    let text = radrm_analyzer::text(&profile, &summary, &TextOptions::default());
    assert!(!radrm_text::printable(&text).contains('\u{1b}'));
    let json = radrm_analyzer::json(&summary);
    serde_json::from_str::<serde_json::Value>(&json).expect("JSON");
}

#[test]
fn profile() {
    let (file, ends) = whole::file(&whole::records());
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        let Some(([which, how], rest)) = bytes.split_first_chunk() else { return };
        let which = usize::from(*which) % ends.len();
        let start = if which == 0 { frame::HEAD_BYTES } else { ends[which - 1] };
        let (before, after) = (&file[..start], &file[ends[which]..]);
        let kind = u32::from_le_bytes(file[start + 4..start + 8].try_into().expect("4 bytes"));
        let payload = &file[start + frame::FRAME_HEAD_BYTES..ends[which]];
        match how % 4 {
            0 => report(&damaged(&file, rest)),
            // Of another type.
            1 => {
                report(&[before, &frame::frame(u32::from(how / 4), &damaged(payload, rest)), after].concat())
            }
            // Twice, once as it was.
            2 => report(&[before, &frame::frame(kind, &damaged(payload, rest)), &file[start..]].concat()),
            _ => report(&[before, &frame::frame(kind, &damaged(payload, rest)), after].concat()),
        }
    });
}
