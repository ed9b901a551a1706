//! Figures of GPUs over time, as clients request them.

use radrm_protocol::wire::{CurvesRow, Response};

use super::Engine;
use crate::error::DaemonError;
use crate::gpu_numbers::number;
use crate::store::curves;

impl Engine {
    /// Figures of each GPU over the time from `from_ms` to `to_ms`, ms since 1970, in at most [`curves::MAX_POINTS`] points.
    pub(super) fn curves(&self, from_ms: u64, to_ms: u64) -> Result<Response, DaemonError> {
        let found = curves::over_time(&self.outbox.store().connection, from_ms, to_ms);
        let mut row: CurvesRow = found.map_err(DaemonError::HistoryRead)?;
        row.emulated.clone_from(&self.node.gpus().emulated);
        for curve in &mut row.gpus {
            let list = &self.node.gpus().list;
            let Some(at) = list.iter().position(|gpu| gpu.uuid == curve.gpu) else { continue };
            (curve.index, curve.total) = (Some(number(list, at)), list[at].total);
            if row.emulated.is_some() {
                // An earlier daemon may have added up what its modelled time gave.
                for point in &mut curve.points {
                    (point.mean_smact, point.mean_power_w, point.energy_mj) = (None, None, None);
                }
            }
        }
        Ok(Response::Curves(Box::new(row)))
    }
}
