//! Cost of counting under a quota: alone, and in a job of many processes.

use anyhow::Result;

use super::{Figures, Plan, Setup, calls};
use crate::{child::Running, rig::Rig};

/// More than the programs ask for: nothing is refused.
const LIMIT: &str = "1000GiB";

/// Times an allocation and its release in all set-ups in turn, RADRM's under a quota.
pub fn time(plan: &Plan, figures: &mut Figures) -> Result<()> {
    for round in 0..plan.alternations {
        eprintln!("quota: round {} of {}", round + 1, plan.alternations);
        for threads in &plan.threads {
            for crowd in [1, plan.crowd] {
                let call = match crowd {
                    1 => "alloc+free under a quota".to_owned(),
                    n => format!("alloc+free under a quota, {n} processes in the job"),
                };
                for setup in Setup::ALL {
                    let rig = Rig::instant().limited(LIMIT);
                    let members = if setup == Setup::Radrm { crowd - 1 } else { 0 };
                    let members: Vec<Running> = (0..members).map(|_| member(&rig)).collect();
                    let mut command = calls::client(&rig, setup);
                    command.env("ONLY", "alloc+free");
                    calls::run(command, plan, *threads, &plan.live[..1], |_, live, threads, batches| {
                        figures.add(call.clone(), live, threads, (setup, round, batches));
                    })?;
                    for mut member in members {
                        member.go_on();
                        member.end().ok();
                    }
                }
            }
        }
    }
    Ok(())
}

/// A process of the job that holds something and lives on.
fn member(rig: &Rig) -> Running {
    let mut command = calls::client(rig, Setup::Radrm);
    command.arg("hold");
    let mut running = Running::start(command, 300);
    running.until_ready();
    running
}
