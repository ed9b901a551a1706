//! Tests of the places that blocks take in the table.

use super::*;
use std::collections::BTreeSet;

/// Share of blocks one stride apart that do not find their home place free in a level that holds `filled` blocks a
/// bucket.
fn away(level: usize, stride: u64, filled: f64) -> f64 {
    let blocks = (level_buckets(level) as f64 * filled) as u64;
    let key = |number: u64| BlockKey::pointer(0x7f10_0000_0000 + number * stride);
    let homes: BTreeSet<_> =
        (0..blocks).map(|n| (first_choice(key(n), level), home(key(n), level))).collect();
    1.0 - homes.len() as f64 / blocks as f64
}

#[test]
fn most_blocks_find_their_home_place_free_at_any_number() {
    for level in 0..6 {
        for stride in [512, 1 << 20, 2 << 20, 4 << 20] {
            for (filled, limit) in [(1.5, 0.45), (3.5, 0.51)] {
                let away = away(level, stride, filled);
                assert!(away <= limit, "level {level}, {stride} bytes apart, {filled} a bucket: {away:.2}");
            }
        }
    }
}
