//! Cost of a program that launches a kernel every 4 us: the same loop through the shim and past it, batch by batch
//! in one process.
//!
//! Few ns are added to some thousand, far less than two processes differ by. Batches that follow each other in one process
//! do not, and what disturbs one disturbs its neighbour. Without a shim both are the same: what is seen there is the
//! error of the method.

use anyhow::{Context, Result, bail, ensure};

use super::batch::{Batch, Pair};
use super::{Figures, Plan, Setup, calls};
use crate::{child, rig::Rig};

/// Time of a call for an event in the instant driver, ns. CUDA drivers take 0.5 to 1.5 us for one.
pub const EVENT_NS: u64 = 1000;
/// Launches of a batch: some are timed in each.
pub const LAUNCHES: u64 = 2000;
/// Modes of `--kernels` that are measured.
pub const MODES: [&str; 2] = ["count", "sample"];

/// Runs the loop in all set-ups in turn.
pub fn time(plan: &Plan, round: usize, figures: &mut Figures) -> Result<()> {
    for mode in MODES {
        for setup in Setup::ALL {
            let rig = Rig::instant();
            let mut command = calls::client(&rig, setup);
            command.arg("paced").args([LAUNCHES.to_string(), plan.pairs.to_string()]);
            command.env("RADRM_INSTANT_EVENT_NS", EVENT_NS.to_string()).env("RADRM_KERNELS", mode);
            let said = child::run(command, 300).ok().stdout;
            let pairs = pairs(&said).with_context(|| format!("the client said {said:?}"))?;
            figures.paced.entry((mode, setup)).or_default().insert(round, pairs);
        }
    }
    Ok(())
}

fn pairs(said: &str) -> Result<Vec<Pair>> {
    let [past, through] = said.lines().collect::<Vec<_>>()[..] else { bail!("not two lines") };
    let batches = |line: &str, way| {
        ensure!(line.starts_with(way), "not {way}");
        line.split('\t').skip(3).map(Batch::parse).collect::<Result<Vec<_>>>()
    };
    let (past, through) = (batches(past, "past")?, batches(through, "through")?);
    ensure!(past.len() == through.len() && !past.is_empty(), "batches without neighbours");
    Ok(past.into_iter().zip(through).map(|(past, through)| Pair { past, through }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_in_pairs() {
        let all =
            pairs("past\t1\t1\t1.0:4000:1.1\t1.1:4000:1.2\nthrough\t1\t1\t1.1:4040:1.2\t1.0:4020:1.1\n")
                .expect("pairs");
        assert_eq!(all.len(), 2);
        assert!((all[0].added() - 0.01).abs() < 1e-9 && (all[1].added() - 0.005).abs() < 1e-9);
        assert_eq!(all[1].yardsticks(), [1.1, 1.2, 1.0, 1.1]);
        for damaged in
            ["", "past\t1\t1\t1:2:3", "past\t1\t1\t1:2:3\nthrough\t1\t1", "through\t1\t1\npast\t1\t1"]
        {
            assert!(pairs(damaged).is_err(), "{damaged}");
        }
    }
}
