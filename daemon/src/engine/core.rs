//! The scheduler core as the daemon holds it: its state, the log of its events, and when it wants to be asked again.

use radrm_scheduler_core::{Decision, Event, Millis, Settings, State};

use crate::events::Log;

pub(super) struct Core {
    pub(super) state: State,
    pub(super) log: Option<Log>,
    /// Time of the tick that the core asked for.
    pub(super) wake: Option<Millis>,
}

impl Core {
    pub(super) fn new(settings: Settings, mut log: Option<Log>) -> Self {
        if let Some(log) = &mut log {
            log.start(&settings);
        }
        Self { state: State::new(settings), log, wake: None }
    }

    /// Gives an event to the core and returns its decisions. Both are logged.
    pub(super) fn step(&mut self, at: Millis, event: Event) -> Vec<Decision> {
        let logged = self.log.is_some().then(|| event.clone());
        let decisions = self.state.step(at, event);
        if let (Some(log), Some(event)) = (&mut self.log, logged) {
            log.step(at, event, &decisions);
        }
        decisions
    }

    /// Returns true if the core asked for a tick at or before this time, and clears the request: it is asked for
    /// once.
    pub(super) fn is_due(&mut self, now: Millis) -> bool {
        self.wake.take_if(|at| *at <= now).is_some()
    }
}
