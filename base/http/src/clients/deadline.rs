//! One deadline for a sequence of reads or writes.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A stream on which all reading or writing ends at one moment: a byte now and then does not extend it.
#[derive(Debug)]
pub struct Until<'a, S> {
    stream: &'a S,
    deadline: Instant,
}

impl<'a, S: AsFd> Until<'a, S> {
    /// Starts the time that reading and writing may take. The stream no longer blocks by itself.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn new(stream: &'a S, limit: Duration) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(stream, true)?;
        Ok(Self { stream, deadline: Instant::now() + limit })
    }

    /// Waits until there is something to read, or the other side has finished.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] at the deadline.
    pub fn readable(&self) -> io::Result<()> {
        self.wait(PollFlags::IN)
    }

    fn wait(&self, wanted: PollFlags) -> io::Result<()> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(self.stream, wanted)], Some(&left)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn retry<T>(&self, wanted: PollFlags, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match work() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(wanted)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Also where the stream is ready at any moment, as one is that sends without end.
                Ok(_) if Instant::now() > self.deadline => return Err(io::ErrorKind::TimedOut.into()),
                done => return done,
            }
        }
    }
}

impl<'a, S: AsFd> Read for Until<'a, S>
where
    &'a S: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        self.retry(PollFlags::IN, || stream.read(buffer))
    }
}

impl<'a, S: AsFd> Write for Until<'a, S>
where
    &'a S: Write,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        self.retry(PollFlags::OUT, || stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::thread;

    #[test]
    fn a_byte_now_and_then_does_not_extend_the_time_to_read() {
        let (own, mut other) = UnixStream::pair().unwrap();
        let sender = thread::spawn(move || {
            while other.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let mut all = Vec::new();
        let error = Until::new(&own, Duration::from_millis(100)).unwrap().read_to_end(&mut all).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(own);
        sender.join().unwrap();
    }

    #[test]
    fn a_reader_that_takes_little_does_not_extend_the_time_to_write() {
        let (own, mut other) = UnixStream::pair().unwrap();
        let (stop, stopped) = std::sync::mpsc::channel();
        let reader = thread::spawn(move || {
            while stopped.try_recv().is_err() && other.read(&mut [0; 64]).is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let mut until = Until::new(&own, Duration::from_millis(100)).unwrap();
        let error = until.write_all(&vec![0; 64 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        stop.send(()).unwrap();
        reader.join().unwrap();
    }

    #[test]
    fn what_is_there_is_read_and_the_end_too() {
        let (own, mut other) = UnixStream::pair().unwrap();
        other.write_all(b"all").unwrap();
        drop(other);
        let mut all = Vec::new();
        Until::new(&own, Duration::from_secs(60)).unwrap().read_to_end(&mut all).unwrap();
        assert_eq!(all, b"all");
    }
}
