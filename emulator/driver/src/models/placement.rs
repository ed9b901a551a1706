//! Load of a launch on the multiprocessors while it runs.
//!
//! Blocks are alike, and each takes one wave. They go to the multiprocessor that has the fewest, so every one has a block
//! before any gets a second. Until the first instruction ([`START_NS`]) nothing is at work:
//!
//! ```text
//! |start|  full waves: all multiprocessors, each with as many blocks as it holds  |  last wave: what is left  |
//! ```
//!
//! Kernels of other streams of the process that run at the same time are added, up to what the GPU has
//! ([`radrm_emulator_machine::SmPlan`]).

use radrm_emulator_machine::SmLoad;

use crate::models::timing::{Geometry, START_NS};

/// A part of a launch: from when to when, counted from the beginning of what it is a part of (ns), and what is at work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Phase {
    /// Its beginning (ns); before 0 in a graph whose stream has been given time already.
    pub from: i64,
    /// Its end (ns).
    pub until: i64,
    /// Load on the multiprocessors.
    pub load: SmLoad,
}

impl Phase {
    /// The same so much later.
    pub fn later(self, ns: i64) -> Self {
        Self { from: self.from.saturating_add(ns), until: self.until.saturating_add(ns), ..self }
    }
}

/// The phases of a launch that takes `alone` ns on an otherwise idle GPU and `ns` as it is. What makes it longer than alone
/// are others, so that it has less at work by as much.
pub fn phases(launch: Geometry, alone: u64, ns: u64) -> Vec<Phase> {
    let (sms, held) = (u64::from(launch.sms), u64::from(launch.resident.max(1)));
    let per_wave = (sms * held).max(1);
    let (full, left) = (launch.blocks / per_wave, launch.blocks % per_wave);
    let waves = full + u64::from(left > 0);
    let (begin, part) = (START_NS.min(ns), alone as f64 / ns.max(1) as f64);
    let behind_full = begin + (u128::from(ns - begin) * u128::from(full) / u128::from(waves.max(1))) as u64;
    let phase = |from: u64, until: u64, blocks: u64| Phase {
        from: from as i64,
        until: until as i64,
        load: SmLoad {
            active: blocks.min(sms) as f64 * part,
            resident: (blocks * u64::from(launch.threads.div_ceil(32))) as f64 * part,
        },
    };
    [phase(begin, behind_full, per_wave), phase(behind_full, ns, left)]
        .into_iter()
        .filter(|phase| phase.from < phase.until && phase.load.active > 0.0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts block after block on the multiprocessor with the fewest, and has all of them end a wave later. Gives the sums
    /// over the waves of multiprocessors with a block and of blocks on them.
    fn by_hand(blocks: u64, sms: usize, held: u64) -> (u64, u64, u64) {
        let (mut left, mut waves, mut active, mut resident) = (blocks, 0, 0, 0);
        while left > 0 {
            let mut on = vec![0_u64; sms];
            while left > 0
                && let Some(least) = on.iter_mut().min()
                && *least < held
            {
                *least += 1;
                left -= 1;
            }
            waves += 1;
            active += on.iter().filter(|count| **count > 0).count() as u64;
            resident += on.iter().sum::<u64>();
        }
        (waves, active, resident)
    }

    #[test]
    fn phases_have_at_work_what_placing_block_by_block_has() {
        let wave = 700;
        for sms in [1_u32, 7, 108] {
            for held in [1_u32, 2, 5] {
                for blocks in [1, 3, 7, 36, 107, 108, 109, 217, 540, 541, 4000] {
                    let launch = Geometry { blocks, threads: 96, resident: held, sms };
                    let (waves, active, resident) = by_hand(blocks, sms as usize, u64::from(held));
                    let ns = START_NS + waves * wave;
                    let (mut sum, mut warps) = (0.0, 0.0);
                    for phase in phases(launch, ns, ns) {
                        assert!(phase.from >= START_NS as i64 && phase.until <= ns as i64);
                        let span = (phase.until - phase.from) as f64;
                        sum += span * phase.load.active;
                        warps += span * phase.load.resident;
                    }
                    assert_eq!(
                        (sum, warps),
                        ((active * wave) as f64, (resident * wave * 3) as f64),
                        "{launch:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn others_make_it_longer_and_no_larger() {
        let launch = Geometry { blocks: 50, threads: 32, resident: 1, sms: 100 };
        let work = |ns| {
            phases(launch, 11_000, ns).iter().map(|p| (p.until - p.from) as f64 * p.load.active).sum::<f64>()
        };
        assert!(
            (work(11_000) / work(22_000) - 10.0 / 10.5).abs() < 1e-9,
            "the start is no longer than it was"
        );
        assert!(phases(launch, 500, 500).is_empty(), "over before the first instruction");
    }
}
