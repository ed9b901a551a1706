//! The timeline as a picture: one column per millisecond, one row per unit of memory.

mod common;

use common::{gpu, join};
use radrm_telemetry::*;

/// One column of the picture is one bucket at the finest resolution.
const COLUMN_NS: u64 = 1 << 20;

/// Draws the device total from what the segment says: `#` at the end of a column, `^` only at its maximum.
fn draw(points: &[TimelinePoint], columns: usize) -> String {
    let total = |kinds: &[u64; 8]| kinds[..5].iter().sum::<u64>();
    let mut heights = vec![(0, 0); columns];
    let (mut next, mut last) = (points.iter().peekable(), 0);
    for (column, height) in heights.iter_mut().enumerate() {
        let mut max = last;
        if let Some(point) = next.next_if(|point| point.t_ns == column as u64 * COLUMN_NS) {
            (max, last) = (point.max_total, total(&point.last_kinds));
        }
        *height = (max, last);
    }
    let tallest = heights.iter().map(|(max, _)| *max).max().unwrap_or(0);
    let row = |row: u64| -> String {
        let cell = |(max, last): &(u64, u64)| {
            if *last >= row {
                '#'
            } else if *max >= row {
                '^'
            } else {
                '.'
            }
        };
        heights.iter().map(cell).collect()
    };
    (1..=tallest).rev().map(row).collect::<Vec<_>>().join("\n")
}

/// Plays `column: change` pairs, and compares the picture.
#[track_caller]
fn check(changes: &[(u64, Kind, i64)], expected: &str) {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let writer = join(&file);
    let gpu = gpu(&writer);
    for (column, kind, change) in changes {
        let ns = column * COLUMN_NS + 5;
        match *change {
            more @ 0.. => writer.charge(gpu, *kind, more as u64, ns),
            less => writer.discharge(gpu, *kind, less.unsigned_abs(), ns),
        }
    }
    let points = file.segment().unwrap().timeline(0, gpu).unwrap();
    let expected = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>();
    assert_eq!(draw(&points, expected[0].len()), expected.join("\n"));
}

#[test]
fn a_ladder() {
    check(
        &[
            (0, Kind::Device, 1),
            (2, Kind::Vmm, 1),
            (4, Kind::Device, 2),
            (6, Kind::Device, -3),
            (7, Kind::Vmm, -1),
        ],
        "
        ....##^.
        ....##^.
        ..####^.
        #######^
        ",
    );
}

#[test]
fn a_peak_between_two_polls_is_not_missed() {
    check(
        &[(1, Kind::Device, 1), (3, Kind::Device, 3), (3, Kind::Device, -3), (5, Kind::Device, -1)],
        "
        ...^...
        ...^...
        ...^...
        .####^.
        ",
    );
}

#[test]
fn host_memory_and_used_pool_memory_are_not_in_the_total() {
    check(
        &[
            (0, Kind::PinnedHost, 5),
            (1, Kind::PoolReserved, 2),
            (2, Kind::PoolUsed, 2),
            (3, Kind::Managed, 9),
        ],
        "
        .####
        .####
        ",
    );
}

#[test]
fn a_release_stamped_a_little_before_its_allocation_leaves_nothing_behind() {
    check(
        &[(2, Kind::Device, 2), (1, Kind::Device, -2), (4, Kind::Device, 1)],
        "
        ..^..
        ..^.#
        ",
    );
}
