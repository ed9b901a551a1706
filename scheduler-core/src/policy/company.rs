//! The jobs that would share a device, as policies judge them.

use super::{Policy, Progress};
use crate::host::HostEffect;
use crate::interference::{Activity, Companies, Constants, Predictor, Resident};
use crate::outside::Outside;
use crate::partitions;
use crate::reason::{Basis, ConstantsFrom, Forecast, Gain, Wait};
use crate::settings::Settings;
use crate::sharing_mode::{SharingMode, TimeSlices};
use crate::units::{Bytes, Permille};

/// The jobs of a device, the newcomer last.
pub(crate) struct Company<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) predictor: &'a Predictor,
    pub(crate) outside: Option<&'a Outside>,
    pub(crate) jobs: &'a [Resident],
    /// Shares that they stated, in thousandths; 0: none.
    pub(crate) shares: &'a [u32],
    /// For each of those here before, whether it is more important than the newcomer.
    pub(crate) protected: &'a [bool],
    /// Effect of the newcomer on the host, on these and on the node's other jobs.
    pub(crate) host: &'a HostEffect,
    /// Memory that each of the jobs reserves, where the policy makes slices; else empty.
    pub(crate) claims: &'a [Bytes],
    /// The device's memory.
    pub(crate) capacity: Bytes,
    /// The device's number.
    pub(crate) device: u32,
    /// Weakest knowledge of the activity of one of the jobs.
    pub(crate) basis: Basis,
    pub(crate) after: &'a mut Vec<f64>,
    pub(crate) companies: &'a mut Companies,
}

impl Company<'_> {
    pub(super) fn activities(&self) -> impl ExactSizeIterator<Item = Activity> + Clone {
        self.jobs.iter().map(|job| job.activity)
    }

    /// Mode in which they are taken to share the device.
    fn sharing(&self) -> SharingMode {
        match self.settings.sharing_of(self.device) {
            // No job has a partition where none states a share.
            SharingMode::Partitions if self.shares.iter().all(|share| *share == 0) => SharingMode::Mps,
            mode => mode,
        }
    }

    /// Origin of [`Company::estimated`].
    pub(super) fn forecast(&self) -> Forecast {
        if self.outside.is_some() {
            return Forecast::Predictor { activity: self.basis };
        }
        let settings = self.settings;
        let sharing = self.sharing();
        let is_shipped = match sharing {
            SharingMode::Mps => settings.interference == Constants::A100_40GB,
            SharingMode::TimeSlices => settings.time_slices == TimeSlices::default(),
            SharingMode::Partitions => settings.partitions == partitions::CONSTANTS,
        };
        let constants = match self.predictor.companies() {
            // Only predictions under MPS follow what is observed.
            companies if companies > 0 && sharing == SharingMode::Mps => {
                ConstantsFrom::Observed { companies }
            }
            _ if is_shipped => ConstantsFrom::Shipped,
            _ => ConstantsFrom::Settings,
        };
        Forecast::Gpu { sharing, constants, activity: self.basis }
    }

    /// Origin of what a policy's own rule predicts.
    pub(super) fn rule(&self, policy: Policy) -> Forecast {
        Forecast::Rule { policy, activity: self.basis }
    }

    /// Progress by a policy's own rule, at one speed for all.
    pub(super) fn by_rule(&self, policy: Policy, gain: u32, speed: u32) -> Progress {
        let gain = i32::try_from(gain).unwrap_or(i32::MAX);
        Progress { gain, speed, slowest: speed, on_host: None, by: Some(self.rule(policy)) }
    }

    /// Estimates the progress of the jobs with the newcomer on the device, against that without it.
    /// A more important job keeps the speed that the settings protect: the lower end of the interval decides.
    pub(super) fn estimated(&mut self) -> Result<Progress, Wait> {
        let (mode, forecast) = (self.sharing(), self.forecast());
        let Self {
            settings,
            predictor,
            outside,
            jobs,
            shares,
            protected,
            host,
            device,
            after,
            companies,
            ..
        } = self;
        let before = match (outside, mode) {
            (Some(outside), _) => {
                outside.speeds_into(&jobs[..jobs.len().saturating_sub(1)], after);
                let before: f64 = after.iter().sum();
                outside.speeds_into(jobs, after);
                before
            }
            (None, SharingMode::Partitions) => {
                let (here, constants) = (jobs.len().saturating_sub(1), &settings.partitions);
                let all: Vec<Activity> = jobs.iter().map(|job| job.activity).collect();
                partitions::speeds(&all[..here], &shares[..here], constants, after);
                let before: f64 = after.iter().sum();
                partitions::speeds(&all, shares, constants, after);
                before
            }
            (None, SharingMode::Mps) => companies.with_newcomer(*device, predictor, jobs, after),
            (None, SharingMode::TimeSlices) => {
                let activities = jobs.iter().map(|job| job.activity);
                let (here, all) = (jobs.len().saturating_sub(1), jobs.len());
                after.clear();
                after.resize(all, settings.time_slices.speed(activities.clone()));
                settings.time_slices.speed(activities.take(here)) * here as f64
            }
        };
        let lows = after.iter().zip(*protected).filter(|(_, protected)| **protected);
        let lows = lows.map(|(speed, _)| (*speed, forecast));
        // On the host jobs of other devices are slowed, too.
        let lows = lows.chain((host.protected < 1.0).then_some((host.protected, Forecast::Host)));
        let low = lows.map(|(speed, by)| (Permille::from_fraction(predictor.interval(speed).low), by));
        match low.min_by_key(|(low, _)| *low) {
            Some((low, by)) if low < settings.protect => {
                Err(Wait::Protected { low, least: settings.protect, by })
            }
            _ => Ok(progress_from(before, after, forecast)),
        }
    }
}

/// Progress from speeds without and with the newcomer.
pub(super) fn progress(before: &[f64], after: &[f64], by: Forecast) -> Progress {
    progress_from(before.iter().sum(), after, by)
}

/// The same from the sum of the speeds without it.
fn progress_from(before: f64, after: &[f64], by: Forecast) -> Progress {
    let there = &after[..after.len().saturating_sub(1)];
    let slowest = there.iter().copied().fold(1.0, f64::min);
    Progress {
        gain: Gain::from_fraction(after.iter().sum::<f64>() - before).0,
        speed: Permille::from_fraction(after.last().copied().unwrap_or(1.0)).0,
        slowest: Permille::from_fraction(slowest).0,
        on_host: None,
        by: Some(by),
    }
}
