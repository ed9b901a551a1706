//! First come, first served, on the GPUs with the most free memory.

use std::cmp::Reverse;
use std::process::ExitCode;

use radrm_scheduler_core::{DeviceId, Plan, PlanError, Planner, State};

struct MostFree;

impl Planner for MostFree {
    fn plan(&mut self, state: &State) -> Result<Vec<Plan>, PlanError> {
        let Some((job, request)) = state.requests().next() else { return Ok(Vec::new()) };
        let mut gpus: Vec<DeviceId> = state.devices().map(|view| view.device.id).collect();
        gpus.retain(|gpu| state.admits(job, *gpu).is_ok());
        gpus.sort_by_key(|gpu| Reverse(state.free(*gpu)));
        match gpus.get(..request.gpus.into()) {
            Some(devices) => {
                Ok(vec![Plan::Start { job, devices: devices.to_vec(), why: "most free memory".into() }])
            }
            None => Ok(vec![Plan::Wait { job, why: format!("{} GPUs have room for it", gpus.len()) }]),
        }
    }
}

fn main() -> ExitCode {
    radrm::replay_own(&|| Box::new(MostFree))
}
