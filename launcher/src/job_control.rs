//! Consequences of signals and of stops of the program: a state, events, and one action for each.
//!
//! No process and no clock in here: [`World`] is asked for what only the system knows.

use crate::signals::{self, Sender, Verdict};

/// Event of job control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A signal arrived.
    Signal {
        /// Its number.
        signal: i32,
        /// Whom it is from.
        sender: Sender,
    },
    /// The action that answered a signal is done.
    Taken,
    /// The program was stopped by this signal.
    Stopped(i32),
    /// The program was continued.
    Continued,
}

/// Action that answers an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// The program gets the signal that arrived.
    PassOn,
    /// This process stops by this signal, so that the shell takes the terminal back.
    Stop(i32),
}

/// State of the system at this moment.
pub trait World {
    /// Returns true if the program is stopped.
    fn is_stopped(&self) -> bool;

    /// Returns true if it still is when a continued group has had its time.
    fn stays_stopped(&self) -> bool;

    /// Returns true if this process's group has the terminal.
    fn in_foreground(&self) -> bool;
}

/// State of job control: what has happened so far, as far as something follows from it.
#[derive(Debug)]
pub struct JobControl {
    /// This process leads its session.
    leads_session: bool,
    /// Signal that stopped the program, while this process has not followed.
    stopped_by: Option<i32>,
    /// A signal of job control arrived since the program was continued.
    asked_to_stop: bool,
    /// This process stopped and was continued since.
    was_stopped: bool,
    /// Signals that arrived from outside, and not from the program.
    arrived: Vec<i32>,
}

impl JobControl {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(leads_session: bool) -> Self {
        Self {
            leads_session,
            stopped_by: None,
            asked_to_stop: false,
            was_stopped: false,
            arrived: Vec::new(),
        }
    }

    /// Signals that arrived from outside, and not from the program, each once.
    #[must_use]
    pub fn arrived(&self) -> &[i32] {
        &self.arrived
    }

    /// Takes one event in, and gives what is to be done.
    pub fn handle(&mut self, event: Event, world: &dyn World) -> Action {
        match event {
            Event::Signal { signal, sender } => self.on_signal(signal, sender, world),
            Event::Taken => self.follow_stop(world),
            Event::Stopped(signal) => {
                self.stopped_by = Some(signal);
                self.follow_stop(world)
            }
            Event::Continued => {
                self.stopped_by = None;
                self.asked_to_stop = false;
                Action::Nothing
            }
        }
    }

    fn on_signal(&mut self, signal: i32, sender: Sender, world: &dyn World) -> Action {
        if matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) {
            self.asked_to_stop = true;
        }
        if !matches!(sender, Sender::Program | Sender::Ourselves) && !self.arrived.contains(&signal) {
            self.arrived.push(signal);
        }
        match signals::decide(signal, sender, self.leads_session) {
            Verdict::Drop => Action::Nothing,
            Verdict::PassOn => Action::PassOn,
            Verdict::WakeIfStopped => {
                // After a stop of ours the group was continued, and the program most likely with
                // it; otherwise this process alone is meant.
                let meant = !std::mem::take(&mut self.was_stopped) || world.stays_stopped();
                self.asked_to_stop = false;
                if meant { Action::PassOn } else { Action::Nothing }
            }
        }
    }

    /// Stops this process too if the program was stopped by job control, so that the shell takes
    /// the terminal back. A program stopped alone and from outside stays alone.
    fn follow_stop(&mut self, world: &dyn World) -> Action {
        let Some(signal) = self.stopped_by else { return Action::Nothing };
        if !self.asked_to_stop && !world.in_foreground() {
            return Action::Nothing;
        }
        // It may have been continued meanwhile.
        if !world.is_stopped() {
            return Action::Nothing;
        }
        self.stopped_by = None;
        self.asked_to_stop = false;
        self.was_stopped = true;
        Action::Stop(signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{SIGCHLD, SIGCONT, SIGINT, SIGSTOP, SIGTERM, SIGTSTP};

    #[derive(Clone, Copy)]
    struct Fake {
        stopped: bool,
        foreground: bool,
    }

    impl World for Fake {
        fn is_stopped(&self) -> bool {
            self.stopped
        }

        fn stays_stopped(&self) -> bool {
            self.stopped
        }

        fn in_foreground(&self) -> bool {
            self.foreground
        }
    }

    const RUNS: Fake = Fake { stopped: false, foreground: false };
    const STOPPED: Fake = Fake { stopped: true, foreground: false };
    const AT_TERMINAL: Fake = Fake { stopped: true, foreground: true };

    fn signal(signal: i32, sender: Sender) -> Event {
        Event::Signal { signal, sender }
    }

    fn all(steps: &[(Event, Fake, Action)]) -> JobControl {
        let mut state = JobControl::new(false);
        for (number, (event, world, expected)) in steps.iter().enumerate() {
            assert_eq!(state.handle(*event, world), *expected, "step {number}: {event:?}");
        }
        state
    }

    #[test]
    fn a_stop_from_the_terminal_stops_the_launcher_too() {
        all(&[
            (signal(SIGTSTP, Sender::Kernel), RUNS, Action::Nothing),
            (Event::Taken, RUNS, Action::Nothing),
            (Event::Stopped(SIGTSTP), STOPPED, Action::Stop(SIGTSTP)),
            (Event::Taken, STOPPED, Action::Nothing),
        ]);
        // The program stops before this process has taken its own signal.
        all(&[
            (Event::Stopped(SIGTSTP), STOPPED, Action::Nothing),
            (signal(SIGTSTP, Sender::Kernel), STOPPED, Action::Nothing),
            (Event::Taken, STOPPED, Action::Stop(SIGTSTP)),
        ]);
        // A program that stops itself while it has the terminal.
        all(&[(Event::Stopped(SIGSTOP), AT_TERMINAL, Action::Stop(SIGSTOP))]);
    }

    #[test]
    fn a_program_stopped_alone_stays_alone() {
        all(&[
            (Event::Stopped(SIGSTOP), STOPPED, Action::Nothing),
            (signal(SIGCHLD, Sender::Kernel), STOPPED, Action::Nothing),
            (Event::Taken, STOPPED, Action::Nothing),
        ]);
    }

    #[test]
    fn a_stop_that_is_over_is_not_followed() {
        all(&[
            (signal(SIGTSTP, Sender::Kernel), RUNS, Action::Nothing),
            (Event::Stopped(SIGTSTP), RUNS, Action::Nothing),
        ]);
        all(&[
            (signal(SIGTSTP, Sender::Kernel), RUNS, Action::Nothing),
            (Event::Continued, RUNS, Action::Nothing),
            (Event::Stopped(SIGSTOP), STOPPED, Action::Nothing),
        ]);
    }

    #[test]
    fn a_continued_group_is_not_woken_twice() {
        let stopped = [
            (signal(SIGTSTP, Sender::Kernel), RUNS, Action::Nothing),
            (Event::Stopped(SIGTSTP), STOPPED, Action::Stop(SIGTSTP)),
        ];
        let with = |last| [&stopped[..], &[last]].concat();
        all(&with((signal(SIGCONT, Sender::Kernel), RUNS, Action::Nothing)));
        all(&with((signal(SIGCONT, Sender::Process), STOPPED, Action::PassOn)));
        // Without a stop of ours it is for the program.
        all(&[(signal(SIGCONT, Sender::Process), RUNS, Action::PassOn)]);
    }

    #[test]
    fn only_signals_from_outside_count_as_arrived() {
        let state = all(&[
            (signal(SIGTERM, Sender::Program), RUNS, Action::Nothing),
            (signal(SIGINT, Sender::Kernel), RUNS, Action::Nothing),
            (signal(SIGINT, Sender::Process), RUNS, Action::PassOn),
            (signal(SIGTERM, Sender::ToGroup), RUNS, Action::Nothing),
        ]);
        assert_eq!(state.arrived(), [SIGINT, SIGTERM]);
    }
}
