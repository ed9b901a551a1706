//! Check that every figure of a plan came out.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::{Figures, Plan, Setup, calls, paced, processes};

impl Figures {
    /// Checks that every figure of the plan came out.
    ///
    /// # Errors
    /// Names the first that did not.
    pub fn check(&self, plan: &Plan) -> Result<()> {
        for setup in Setup::ALL {
            ensure!(
                self.start.get(&setup).is_some_and(|s| s.len() >= plan.starts),
                "{setup:?}: starts are missing"
            );
            ensure!(
                self.exec.get(&setup).is_some_and(|s| s.len() >= plan.execs),
                "{setup:?}: starts without CUDA are missing"
            );
            ensure!(self.at_once.contains_key(&setup), "{setup:?}: starts at once are missing");
            for mode in paced::MODES {
                let rounds = self.paced.get(&(mode, setup)).map_or(0, BTreeMap::len);
                ensure!(rounds == plan.alternations, "{setup:?}: launches every 4 us are missing");
            }
            for (key, processes) in &self.batches {
                let own: Vec<_> = processes.iter().filter(|p| p.0 == setup).collect();
                ensure!(
                    own.len() == plan.alternations
                        && own.iter().all(|p| !p.2.is_empty() && p.2.iter().all(|b| b.nanos > 0.0)),
                    "{setup:?}: {key:?} is missing"
                );
            }
        }
        for call in calls::CALLS {
            ensure!(self.batches.keys().any(|k| k.call == call), "{call} was not measured");
        }
        for (name, _) in processes::WATCHED {
            ensure!(
                self.watched.get(name).is_some_and(|s| s.len() == plan.watched),
                "{name}: starts are missing"
            );
        }
        ensure!(self.growth.contains_key(&Setup::Radrm), "the growth of memory was not measured");
        ensure!(
            plan.counted == 0 || self.no_instructions.is_some() || !self.instructions.is_empty(),
            "instructions were not counted"
        );
        Ok(())
    }
}
