//! Figures of a run that are its own among the runs of its sweep.

use radrm_text::Untrusted;
use serde::Serialize;

/// Figures of a run that are its own, also where it shared its GPUs: those of the sweep that it is part of. A profile alone
/// has only the figures of whole GPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OwnSummary {
    /// Name of the sweep.
    pub sweep: Untrusted,
    /// SM activity, 0 to 1; null where it cannot be told from that of others.
    pub sm_active_share: Option<f64>,
    /// Origin of `sm_active_share`.
    pub sm_active_origin: Option<String>,
    /// Energy, J; null where it cannot be told from that of others, or was not measured.
    pub energy_j: Option<f64>,
    /// Origin of `energy_j`.
    pub energy_origin: Option<String>,
    /// Time beside other members of its group on its GPUs, s; null: it was alone there.
    pub overlap_s: Option<f64>,
}

impl OwnSummary {
    /// Labels and texts of the figures.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let with_origin = |text: String, origin: Option<&String>| match origin {
            Some(origin) => format!("{text} ({origin})"),
            None => text,
        };
        let unknown = || "n/a: it cannot be told from that of others, or was not measured".to_owned();
        let activity = self.sm_active_share.map(|share| format!("{:.1} %", share * 100.0));
        let energy = self.energy_j.map(|joules| format!("{joules:.1} J"));
        let mut lines = vec![
            (
                "SM activity",
                activity.map_or_else(unknown, |text| with_origin(text, self.sm_active_origin.as_ref())),
            ),
            ("energy", energy.map_or_else(unknown, |text| with_origin(text, self.energy_origin.as_ref()))),
        ];
        lines.extend(self.overlap_s.map(|seconds| {
            ("beside others", format!("{seconds:.2} s, by members of its group on its GPUs"))
        }));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_figures_name_their_origin_or_that_they_are_not_known() {
        let own = OwnSummary {
            sm_active_share: Some(0.25),
            sm_active_origin: Some("part by launches of gpm".into()),
            overlap_s: Some(20.0),
            ..OwnSummary::default()
        };
        let lines = own.lines();
        assert_eq!(lines[0], ("SM activity", "25.0 % (part by launches of gpm)".to_owned()));
        assert!(lines[1].1.starts_with("n/a"), "{lines:?}");
        assert_eq!(lines[2].1, "20.00 s, by members of its group on its GPUs");
    }
}
