//! `radrm logs`: the job's own files, read as the user that asks.

use std::fs::File;
use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use clap::Args;

use super::connection::Connection;
use super::odd;
use crate::daemon::wire::{JobRow, Request, Response};

/// How often a file is looked at that grows.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Args, Debug)]
pub(super) struct Flags {
    #[arg(short, long)]
    follow: bool,
    /// Standard error, where it is apart.
    #[arg(short, long)]
    error: bool,
    job: u64,
}

pub(super) fn run(flags: &Flags, connection: &mut Connection) -> Result<(), String> {
    let mut row = row(flags.job, connection)?;
    let path = match (&row.error, flags.error) {
        (Some(path), true) => path.clone(),
        _ => row.output.clone(),
    };
    let mut file = None;
    loop {
        // Asked before the last reading: what was written before the end is read after it.
        let over = row.end.is_some();
        if file.is_none() {
            match File::open(&path) {
                Ok(opened) => file = Some(opened),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    if over || !flags.follow {
                        let waits = if row.attempts == 0 { "has not started" } else { "has written nothing" };
                        return Err(format!("job {} {waits}", flags.job));
                    }
                }
                Err(error) => return Err(format!("{path}: {}", crate::output::reason(&error))),
            }
        }
        if let Some(file) = &mut file
            && !copy(file)?
        {
            return Ok(());
        }
        if over || !flags.follow {
            return Ok(());
        }
        thread::sleep(LOOK);
        row = self::row(flags.job, connection)?;
    }
}

fn row(job: u64, connection: &mut Connection) -> Result<JobRow, String> {
    match connection.ask(&Request::Show { job })? {
        Response::Job(row, _) => Ok(*row),
        other => Err(odd(&other)),
    }
}

/// Copies what is there; false if nobody reads any more.
fn copy(file: &mut File) -> Result<bool, String> {
    let mut buffer = [0; 16 << 10];
    let mut out = std::io::stdout().lock();
    loop {
        let count = file.read(&mut buffer).map_err(|error| crate::output::reason(&error))?;
        let done = if count == 0 { out.flush() } else { out.write_all(&buffer[..count]) };
        match done {
            Ok(()) if count == 0 => return Ok(true),
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(false),
            Err(error) => return Err(format!("standard output cannot be written: {error}")),
        }
    }
}
