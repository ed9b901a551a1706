//! Figures of all devices over time, in a bounded number of pieces of equal length.

use serde::{Deserialize, Serialize};

use crate::units::Millis;

/// Most pieces; with more, two neighbours become one.
const MAX_PIECES: usize = 400;

/// Memory in use, SM activity and power of all devices, as sums over the time of each piece.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    begin: u64,
    /// Length of each piece, ms; 0: there is none yet.
    length: u64,
    /// Its end, since the begin.
    end: u64,
    /// Bytes times ms, SM activity (1: all of one device) times ms, and J.
    sums: Vec<[f64; 3]>,
}

/// Means over a piece of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Piece {
    /// Its begin, since the begin of the curve.
    pub from: Millis,
    /// Its end.
    pub to: Millis,
    /// Memory in use of all devices, bytes.
    pub memory: f64,
    /// SM activity of all devices: 1 is all of one device.
    pub smact: f64,
    /// Power of all devices, W.
    pub watts: f64,
}

impl Curve {
    /// A curve that begins at this time.
    pub(super) fn new(begin: Millis) -> Self {
        Self { begin: begin.0, length: 1, end: 0, sums: Vec::new() }
    }

    /// Adds what a device did from one time to another: memory in bytes, SM activity and power in W. Time before the
    /// curve's begin is left out.
    pub(super) fn add(&mut self, from: Millis, to: Millis, [memory, smact, watts]: [f64; 3]) {
        let (mut from, to) = (from.0.saturating_sub(self.begin), to.0.saturating_sub(self.begin));
        if self.length == 0 || from >= to {
            return;
        }
        self.end = self.end.max(to);
        while to > self.length * MAX_PIECES as u64 {
            let joined = |two: &[[f64; 3]]| [0, 1, 2].map(|at| two.iter().map(|sums| sums[at]).sum());
            self.sums = self.sums.chunks(2).map(joined).collect();
            self.length *= 2;
        }
        while from < to {
            let piece = from / self.length;
            let end = ((piece + 1) * self.length).min(to);
            let span = (end - from) as f64;
            let at = piece as usize;
            if self.sums.len() <= at {
                self.sums.resize(at + 1, [0.0; 3]);
            }
            let more = [memory * span, smact * span, watts * span / 1000.0];
            self.sums[at].iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            from = end;
        }
    }

    /// Pieces in order of time.
    #[must_use]
    pub fn pieces(&self) -> Vec<Piece> {
        let piece = |(at, [memory, smact, joules]): (usize, &[f64; 3])| {
            let from = at as u64 * self.length;
            let to = (from + self.length).min(self.end);
            let span = to.checked_sub(from).filter(|span| *span > 0)? as f64;
            let watts = joules * 1000.0 / span;
            Some(Piece {
                from: Millis(from),
                to: Millis(to),
                memory: memory / span,
                smact: smact / span,
                watts,
            })
        };
        self.sums.iter().enumerate().filter_map(piece).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_keeps_its_sums_in_few_pieces() {
        let mut curve = Curve::new(Millis(1000));
        // Two devices, one of them with a piece before the begin.
        curve.add(Millis(0), Millis(1000), [9.0, 9.0, 9.0]);
        for second in 0..5000u64 {
            let (from, to) = (Millis(1000 + second * 1000), Millis(2000 + second * 1000));
            let half = if second < 2500 { 1.0 } else { 0.0 };
            curve.add(from, to, [4.0, half, 100.0]);
            curve.add(from, to, [2.0, 0.5, 50.0]);
        }
        let pieces = curve.pieces();
        assert!((MAX_PIECES / 2..=MAX_PIECES).contains(&pieces.len()), "{}", pieces.len());
        assert!(pieces.windows(2).all(|two| two[0].to == two[1].from));
        assert_eq!(pieces.last().unwrap().to, Millis(5_000_000));
        assert!(
            pieces
                .iter()
                .all(|piece| (piece.memory - 6.0).abs() < 1e-6 && (piece.watts - 150.0).abs() < 1e-6)
        );
        assert!((pieces[0].smact - 1.5).abs() < 1e-9 && (pieces.last().unwrap().smact - 0.5).abs() < 1e-9);
        let joules: f64 =
            pieces.iter().map(|piece| piece.watts * piece.to.minus(piece.from).as_secs_f64()).sum();
        assert!((joules - 150.0 * 5000.0).abs() < 1e-3, "{joules}");
    }
}
