//! Checks that run beside the tests, with what these leave of the processors: tests wait for nearly half of their time.

use std::fs::File;
use std::process::Command;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};
use xtask::shell;

/// A check that was started.
pub struct Check {
    /// Its name.
    pub name: &'static str,
    running: JoinHandle<Result<()>>,
}

impl Check {
    /// Starts a check that takes a processor only where no test wants it. What it prints comes with its failure.
    pub fn start(name: &'static str, command: &Command) -> Self {
        let mut calm = shell::command("nice");
        calm.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
        for (variable, value) in command.get_envs() {
            match value {
                Some(value) => calm.env(variable, value),
                None => calm.env_remove(variable),
            };
        }
        eprintln!("+ {name}, beside the tests");
        Self { name, running: thread::spawn(move || wait(calm)) }
    }

    /// Waits for its end.
    pub fn end(self) -> Result<()> {
        self.running.join().unwrap_or_else(|_| bail!("{} could not be run", self.name))
    }
}

fn wait(mut command: Command) -> Result<()> {
    let done = command.output().context("nice could not be started")?;
    if !done.status.success() {
        bail!(
            "{}\n{}{}",
            done.status,
            String::from_utf8_lossy(&done.stderr),
            String::from_utf8_lossy(&done.stdout)
        );
    }
    Ok(())
}

/// Arguments by which the runner finds the test programs that were built, so that it does not wait for a check that builds.
///
/// # Errors
/// They cannot be listed.
pub fn built_programs() -> Result<Vec<String>> {
    let list = |name: &str, arguments: &[&str]| -> Result<String> {
        let path = shell::target_dir().join(name);
        let mut command = shell::cargo();
        command.args(arguments).stdout(File::create(&path).with_context(|| path.display().to_string())?);
        shell::run(&mut command)?;
        Ok(path.display().to_string())
    };
    let programs =
        ["nextest", "list", "--workspace", "--list-type", "binaries-only", "--message-format", "json"];
    Ok(vec![
        "--binaries-metadata".to_owned(),
        list("test-programs.json", &programs)?,
        "--cargo-metadata".to_owned(),
        list("packages.json", &["metadata", "--format-version", "1"])?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_check_prints_is_in_its_error() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo told; echo also $GIVEN >&2; exit 3"]).env("GIVEN", "this");
        let error = format!("{:#}", Check::start("a check", &command).end().unwrap_err());
        assert!(error.contains("told") && error.contains("also this") && error.contains('3'), "{error}");
        assert!(Check::start("a check", &Command::new("true")).end().is_ok());
    }
}
