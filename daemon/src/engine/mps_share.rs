//! The part of a GPU's multiprocessors that a job gets under MPS: by a curve that was measured here, else all of them.

use radrm_limits::mps::warnings::SHARE_VARIABLE;
use radrm_scheduler_core::interference::ShareCurve;

use super::Engine;
use super::programs::program_of;
use crate::store::Entry;

/// A part, and the speed that the program keeps there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) percent: u8,
    pub(super) speed: f64,
}

impl Part {
    /// Option for the launcher: it knows whether the job runs under MPS.
    pub(super) fn option(self) -> [String; 2] {
        ["--measured-share".to_owned(), self.percent.to_string()]
    }

    pub(super) fn sentence(self, is_under_mps: bool) -> String {
        // The launcher may have it run under MPS by its user's own file.
        let who = if is_under_mps { "under MPS" } else { "as far as it runs under MPS" };
        format!(
            "{who} on {} % of the multiprocessors: there it was measured to keep {:.0} % of its speed",
            self.percent,
            self.speed * 100.0
        )
    }
}

impl Engine {
    /// The smallest part at which the job's program keeps its speed on all of its GPUs. `None`: no limit, because that was not
    /// measured, none is small enough, the job has its GPUs to itself, or its user chose.
    pub(super) fn mps_part(&self, entry: &Entry, environment: &[String]) -> Option<Part> {
        let has_chosen = || environment.iter().any(|line| line.split('=').next() == Some(SHARE_VARIABLE));
        if entry.spec.exclusive || entry.spec.share.is_some() || entry.devices.is_empty() || has_chosen() {
            return None;
        }
        let program = program_of(entry).0;
        let models = self.node.names(&entry.devices);
        if models.len() < entry.devices.len() {
            return None;
        }
        let part = |model: &String| {
            let curve = self.outbox.share_curve(&program, model)?;
            let percent = curve.enough(ShareCurve::KEPT)?;
            Some(Part { percent, speed: curve.speed(percent)? })
        };
        let parts: Option<Vec<Part>> = models.iter().map(part).collect();
        parts?.into_iter().max_by_key(|part| part.percent)
    }
}
