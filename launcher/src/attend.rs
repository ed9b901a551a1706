//! A job whose processes another program starts, as a workload manager does: it gets the environment for them, and
//! reports their ends.
//!
//! The answer on standard output is `\0ok\0`, then `NAME=VALUE\0` for each variable, then `\0`. What comes on standard
//! input is a line for each process that has ended, `PID STATUS` with a status as of `wait`, `kill` where the processes that
//! are left are to be killed at once, and at last `end`. The end of the input is the end of the job. When the profile is
//! written, `\0end\0`, lines `NAME VALUE` and `\0` follow on standard output. Remarks go to standard error.
//!
//! Processes of the job that are left are killed: what they hold is given to others. Without `end` the other program was
//! killed, and nothing else ends them. After it they are those that escaped, as a process does that is forked while its
//! parent is killed, where the workload manager follows parents and has no control group.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use radrm_analyzer::Summary;
use radrm_limits::program::environment::Environment;
use radrm_os::Process;
use radrm_profile::Profile;
use rustix::process::{Signal, pidfd_send_signal};

use crate::arm::Armed;
use crate::ending::Ending;
use crate::recording::Recording;
use crate::signals::{self, Held};
use crate::spawn::Started;
use crate::supervise::Observer;

/// Longest line that is kept: far more than two numbers take.
const MAX_LINE: usize = 64;
/// A process that starts others all the time is killed with all of them before it is found so often.
const MAX_KILLS: usize = 100;
const KILL_INTERVAL: Duration = Duration::from_millis(20);

impl Armed<'_> {
    /// Hands out the environment and records until standard input ends. Gives how the job ended: like the first
    /// process that failed, if one did.
    #[must_use]
    pub fn attend(self) -> Ending {
        // What ends the job is the end of the input, which comes whatever happens to the program that started it.
        let _held = Held::all();
        let Self {
            mut prepared,
            environment,
            channel,
            started,
            ledgers,
            steps,
            dry_run: _,
            tensors,
            mut mps,
            fence,
        } = self;
        prepared.profile.keep();
        let (plan, remarks) = (prepared.plan, prepared.remarks);
        // The other program waits for nothing else. A reader that is gone has closed the input too.
        let _ = answer(&prepared.environment, &environment);
        let mut recording = channel.and_then(|channel| {
            let pid = signals::own_pid();
            let group = plan.control_group.clone();
            let start = Started { channel, pid, at: started, attended: true, ledgers, group };
            prepared.recording(start, &mps)
        });
        let (ending, is_over) = Reports::default().wait(&mut recording, &|| kill_all(&environment));
        if !is_over {
            kill_all(&environment);
        }
        let channel = recording.map(|mut recording| {
            recording.tensors(tensors);
            let is_left = !recording.carriers().is_empty();
            recording.finish(plan, ending, remarks, false, &mut |profile| {
                let _ = write(&figures(profile));
                remarks.all(mps.leave(is_left));
            })
        });
        drop((steps, fence));
        if is_over {
            // Slurm has the figures and waits no longer.
            kill_all(&environment);
        }
        // What those that were killed could still have joined goes with them.
        drop(channel);
        match prepared.emulated.take() {
            // The processes are another program's children.
            Some(emulated) if emulated.is_used(0) => drop(emulated.keep()),
            other => drop(other),
        }
        ending
    }
}

/// Writes the variables that `after` has and `before` has not.
fn answer(before: &Environment, after: &Environment) -> io::Result<()> {
    let mut text = b"\0ok\0".to_vec();
    for entry in after.entries().iter().filter(|entry| !before.entries().contains(entry)) {
        text.extend_from_slice(entry.to_bytes_with_nul());
    }
    text.push(0);
    write(&text)
}

fn write(text: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text)?;
    output.flush()
}

/// Figures that the other program gets of the job at its end.
fn figures(profile: &Profile) -> Vec<u8> {
    let summary = Summary::from_profile(profile);
    let footprint = radrm_analyzer::footprint(&summary);
    let [smact, ..] = radrm_analyzer::findings(&summary).features.activity();
    let mut text = b"\0end\0".to_vec();
    let mut line = |name: &str, value: Option<u64>| {
        text.extend(value.map(|value| format!("{name} {value}\n")).unwrap_or_default().into_bytes());
    };
    line("peak", footprint.peak);
    line("oom", footprint.oom);
    line("smact", smact.map(|part| u64::from(part.0)));
    text.push(0);
    text
}

/// Kills the processes that got this job's environment, and those that they start meanwhile.
fn kill_all(environment: &Environment) {
    // A job that this one submitted may have inherited the first, and never the second.
    const NAMES: [&str; 2] = ["RADRM_SEGMENT", "SLURM_JOB_ID"];
    if environment.get(NAMES[0]).is_none() {
        return;
    }
    let is_own = |process: &Process| {
        let has = |name: &&str| {
            process.variable(name).as_ref().map(|value| value.as_encoded_bytes()) == environment.get(name)
        };
        NAMES.iter().all(has) && process.state() != Some(b'Z')
    };
    for _ in 0..MAX_KILLS {
        let own: Vec<Process> =
            Process::all().filter(|process| process.0 != std::process::id()).filter(is_own).collect();
        for process in &own {
            // Compared again once it is held: the number may be another process's by now.
            if let Ok(held) = radrm_os::pidfd::open(process.0)
                && is_own(process)
            {
                let _ = pidfd_send_signal(held, Signal::KILL);
            }
        }
        if own.is_empty() {
            return;
        }
        std::thread::sleep(KILL_INTERVAL);
    }
}

/// Reports on standard input.
#[derive(Default)]
struct Reports {
    line: Vec<u8>,
    failed: Option<Ending>,
    /// The other program says that the job is over.
    is_over: bool,
    /// The other program says that no process may be left.
    is_to_kill: bool,
}

impl Reports {
    /// Waits for the end of the job. Returns how it ended, and true if the other program reported that it did.
    fn wait(mut self, recording: &mut Option<Recording>, kill: &dyn Fn()) -> (Ending, bool) {
        let mut next_poll = Instant::now();
        loop {
            let now = Instant::now();
            if now >= next_poll {
                next_poll = now + recording.poll();
            }
            if is_readable(next_poll.saturating_duration_since(Instant::now())) {
                let mut room = [0; 4096];
                match io::stdin().lock().read(&mut room) {
                    Ok(0) => break,
                    Ok(read) => {
                        for (pid, ending) in self.take(&room[..read]) {
                            recording.descendant_ended(pid, ending);
                        }
                        if std::mem::take(&mut self.is_to_kill) {
                            // While they live, what they hold is recorded.
                            let _ = recording.poll();
                            kill();
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        }
        (self.failed.unwrap_or(Ending::Exited(0)), self.is_over)
    }

    /// The processes whose ends these bytes complete a line about.
    fn take(&mut self, bytes: &[u8]) -> Vec<(libc::pid_t, Ending)> {
        let mut ended = Vec::new();
        for byte in bytes {
            if *byte != b'\n' {
                if self.line.len() < MAX_LINE {
                    self.line.push(*byte);
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            self.is_over |= line == b"end";
            self.is_to_kill |= line == b"kill";
            let Some((pid, ending)) = parse(&line) else { continue };
            if ending != Ending::Exited(0) {
                self.failed.get_or_insert(ending);
            }
            ended.push((pid, ending));
        }
        ended
    }
}

fn parse(line: &[u8]) -> Option<(libc::pid_t, Ending)> {
    let (pid, status) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let pid = pid.parse().ok().filter(|pid| *pid > 0)?;
    Some((pid, Ending::from_status(status.parse().ok()?)?))
}

/// Waits until standard input can be read, or has ended; `false`: not within this time.
fn is_readable(time: Duration) -> bool {
    // Rounded up: a rest of less than a millisecond would be waited for by asking again and again.
    let millis = i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    let mut poll = libc::pollfd { fd: io::stdin().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure that lives here.
    unsafe { libc::poll(&mut poll, 1, millis) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_ends_like_its_first_failed_process() {
        let mut reports = Reports::default();
        assert_eq!(reports.take(b"12 0\n13 2"), [(12, Ending::Exited(0))]);
        assert_eq!(reports.failed, None);
        // 13: exit code 1; 14: SIGKILL.
        let killed = Ending::Killed { signal: 9, core: false };
        assert_eq!(reports.take(b"56\n14 9\n"), [(13, Ending::Exited(1)), (14, killed)]);
        assert_eq!(reports.failed, Some(Ending::Exited(1)));
    }

    #[test]
    fn lines_that_report_no_end_are_ignored() {
        let mut reports = Reports::default();
        let long = [b'1'; 4096];
        assert!(reports.take(&long).is_empty() && reports.line.len() == MAX_LINE);
        assert!(reports.take(b"\n\n7\n-1 0\nx 0\n7 x\n7 4991\n").is_empty());
        assert!(!reports.is_over);
        assert!(reports.take(b"kill\n").is_empty());
        assert!(reports.is_to_kill && !reports.is_over);
        assert!(reports.take(b"end\n").is_empty());
        assert!(reports.is_over);
    }
}
