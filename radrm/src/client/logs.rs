//! `radrm logs`: the own job's files, read as the user that asks, and those of other users through radrmd.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use clap::Args;
use radrm_profile::Bytes;
use radrm_protocol::connection::Connection;
use radrm_protocol::connection::odd;
use radrm_protocol::job_ref::JobRef;
use radrm_protocol::wire::{JobRow, Request, Response};
use radrm_text::output::{self, Delivery};

use crate::error::FileProblem;
use crate::{Failure, NAME};

/// Interval at which a growing file is read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Args, Debug)]
pub struct Flags {
    /// Print new output until the job ends
    #[arg(short, long)]
    follow: bool,
    /// Standard error, if the job writes it to another file
    #[arg(short, long)]
    error: bool,
    /// Print control characters as the job wrote them; where standard output is not a terminal they always are
    #[arg(long)]
    raw: bool,
    /// Number of the job, or of one of an array (12_3)
    job: JobRef,
}

pub(super) fn run(flags: &Flags, connection: &mut Connection) -> Result<(), Failure> {
    let mut row = row(flags.job, connection)?;
    let path = row.stream(flags.error).clone();
    let mut file = None;
    let mut shown = Shown::new(flags.raw);
    loop {
        // Asked before the last reading: what was written before the end is read after it.
        let over = row.end.is_some();
        if file.is_none() {
            file = open(&row, flags.error, connection)?;
            match &file {
                Some(opened) if !opened.metadata().is_ok_and(|found| found.is_file()) => {
                    return Err(Failure::OutputNotKept(path));
                }
                None if over || !flags.follow => {
                    return Err(Failure::NoOutput { job: flags.job, has_started: row.attempts > 0 });
                }
                _ => {}
            }
        }
        if let Some(file) = &mut file
            && !copy(file, Path::new(path.raw()), &mut shown)?
        {
            return Ok(());
        }
        if over || !flags.follow {
            return Ok(());
        }
        thread::sleep(POLL_INTERVAL);
        row = self::row(flags.job, connection)?;
    }
}

fn row(job: JobRef, connection: &mut Connection) -> Result<JobRow, Failure> {
    match connection.ask(&Request::Show { job })? {
        Response::Job(row, _) => Ok(*row),
        other => Err(odd(&other).into()),
    }
}

/// Opens the output, if it is there: the own one without waiting for a writer of a FIFO. Another user's is opened by radrmd,
/// for administrators, with that user's rights.
fn open(row: &JobRow, error: bool, connection: &mut Connection) -> Result<Option<File>, Failure> {
    if row.uid != rustix::process::geteuid().as_raw() {
        return Ok(connection.output(row.job.into(), error)?);
    }
    let path = Path::new(row.stream(error).raw());
    match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileProblem::Io(error).of(path)),
    }
}

/// Copies what is there; false if the reader is gone.
fn copy(file: &mut File, path: &Path, shown: &mut Shown) -> Result<bool, Failure> {
    let mut buffer = [0; 16 << 10];
    loop {
        let left_out = skip_hole(file).map_err(|error| FileProblem::Io(error).of(path))?;
        if left_out > 0 {
            let said = format!("{} are left out: {} has no data there", Bytes(left_out), path.display());
            output::say(NAME, &said);
        }
        let count = file.read(&mut buffer).map_err(|error| FileProblem::Io(error).of(path))?;
        if count == 0 {
            return Ok(true);
        }
        if shown.write(&buffer[..count]).map_err(Failure::Output)? == Delivery::Closed {
            return Ok(false);
        }
    }
}

/// Zeros of a hole that are printed like others; a longer hole is left out.
const MAX_HOLE: u64 = 1 << 20;

/// Goes on behind a hole, which its writer makes of any length at no cost; returns the number of bytes that it leaves out.
fn skip_hole(file: &mut File) -> std::io::Result<u64> {
    let at = file.stream_position()?;
    let next = match rustix::fs::seek(&*file, rustix::fs::SeekFrom::Data(at)) {
        Ok(next) => next,
        // Nothing but a hole follows, or nothing.
        Err(rustix::io::Errno::NXIO) => file.seek(SeekFrom::End(0))?,
        // A file system without holes.
        Err(_) => at,
    };
    let hole = next.saturating_sub(at);
    if hole > MAX_HOLE {
        file.seek(SeekFrom::Start(next))?;
        return Ok(hole);
    }
    file.seek(SeekFrom::Start(at))?;
    Ok(0)
}

/// Form in which an output is shown: all of it, or on a terminal its text, where no character acts on the terminal.
struct Shown {
    is_text: bool,
    /// The beginning of a character whose end is not read yet.
    rest: Vec<u8>,
}

impl Shown {
    fn new(is_raw: bool) -> Self {
        Self { is_text: !is_raw && std::io::stdout().is_terminal(), rest: Vec::new() }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<Delivery> {
        match self.is_text {
            true => output::to_stdout(&self.text(bytes)),
            false => output::bytes_to_stdout(bytes),
        }
    }

    /// The text of further bytes. A return to the beginning of the line, as progress bars make it, becomes a new line.
    fn text(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            // Returns followed by a line feed are one line's end.
            _ if self.rest.ends_with(b"\r") => self.rest.len() - 1,
            _ => self.rest.len(),
        };
        let rest = self.rest.split_off(whole);
        let text = String::from_utf8_lossy(&std::mem::replace(&mut self.rest, rest)).into_owned();
        text.replace("\r\n", "\n").replace('\r', "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_protocol::wire;
    use std::os::unix::net::UnixListener;

    #[test]
    fn parts_of_output_are_whole_characters_and_lines() {
        let mut shown = Shown { is_text: true, rest: Vec::new() };
        let parts: [&[u8]; 5] = [b"10 %\r20 %\r", b"\na\xc3", b"\xa9\xff", b"\xe2\x80", b"\xae\n"];
        let text: Vec<String> = parts.iter().map(|part| shown.text(part)).collect();
        assert_eq!(text, ["10 %\n20 %", "\na", "\u{e9}\u{fffd}", "", "\u{202e}\n"]);
    }

    #[test]
    fn holes_of_an_output_are_left_out() {
        use std::os::unix::fs::FileExt;
        let mut file = tempfile::tempfile().unwrap();
        let place = 8 << 40;
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"end", place).unwrap();
        file.set_len(place + (1 << 40)).unwrap();
        let (mut read, mut left_out) = (0, 0);
        let mut buffer = [0; 64 << 10];
        for _ in 0..100 {
            left_out += skip_hole(&mut file).unwrap();
            read += file.read(&mut buffer).unwrap();
        }
        assert!(left_out > (9 << 40) - (1 << 20) && read < 1 << 20, "{left_out} left out, {read} read");
        assert_eq!(left_out + read as u64, place + (1 << 40));
        // A short one is as other zeros, and an end that comes nearer is no hole.
        file.set_len(100).unwrap();
        file.rewind().unwrap();
        assert_eq!((skip_hole(&mut file).unwrap(), file.read(&mut buffer).unwrap()), (0, 100));
        file.set_len(10).unwrap();
        assert_eq!((skip_hole(&mut file).unwrap(), file.read(&mut buffer).unwrap()), (0, 0));
    }

    #[test]
    fn output_that_is_no_regular_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        for output in [fifo.display().to_string(), "/dev/full".to_owned(), "/dev/zero".to_owned()] {
            let socket = dir.path().join("socket");
            let listener = UnixListener::bind(&socket).unwrap();
            let (uid, end) = (rustix::process::geteuid().as_raw(), Some("succeeded".into()));
            let row = JobRow { output: output.as_str().into(), uid, end, ..JobRow::default() };
            let daemon = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                wire::greet(&mut stream).unwrap();
                wire::read::<Request>(&mut stream).unwrap();
                wire::answer(&mut stream, Response::Job(Box::new(row), Vec::new())).unwrap();
            });
            let mut connection = Connection::open(Some(&socket)).unwrap();
            let why = run(&Flags { follow: true, error: false, raw: false, job: 1.into() }, &mut connection)
                .unwrap_err();
            let why = why.to_string();
            assert!(why.contains(&output) && why.contains("not a regular file"), "{why}");
            daemon.join().unwrap();
            std::fs::remove_file(socket).unwrap();
        }
    }
}
