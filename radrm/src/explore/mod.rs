//! `radrm explore`: the runs of a dataset as a page that a server of this machine gives to its user's browser.

mod answers;
mod columns;
mod error;
mod interference;
mod token;

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Args;
use radrm_collector::dataset::Dataset;
use radrm_http::{Bounds, Server, clients};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::show::dataset::{in_file, path};
use crate::{Failure, deliver, sweep};

use answers::Explorer;
pub(crate) use error::ExploreError;
use token::Token;

const SERVER: Server = Server {
    name: "explore",
    bounds: Bounds {
        // A browser opens six for a page, and some in advance. It is the own user's; others have no token.
        clients: clients::Bounds { all: 96, of_user: 64, reserved: 64 },
        request: 16 << 10,
        timeout: Duration::from_secs(10),
        // Pages of large profiles are rendered on it.
        stack: 8 << 20,
    },
    is_privileged: |uid| uid == 0 || uid == rustix::process::geteuid().as_raw(),
};

/// The flags as written.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// Files of sweeps: the page shows their parameters, and how much their runs slow each other
    #[arg(value_name = "SWEEP")]
    sweeps: Vec<PathBuf>,
    /// Show this dataset
    #[arg(long, value_name = "FILE")]
    dataset: Option<PathBuf>,
    /// Serve at this port of 127.0.0.1 [default: a free one]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
}

/// Serves until a signal asks for the end.
///
/// # Errors
/// The dataset or a sweep cannot be read, or there is no such port.
pub(crate) fn run(flags: &Flags) -> Result<(), Failure> {
    let dataset = path(flags.dataset.clone())?;
    Dataset::open_existing(&dataset).map_err(|error| in_file(&dataset, error))?;
    for file in &flags.sweeps {
        sweep::recorded(file)?;
    }
    let mut end = signals().map_err(ExploreError::Signals)?;
    let listener = bind(flags.port)?;
    let address = listener.local_addr().map_err(ExploreError::NoServer)?;
    let token = Token::new().map_err(ExploreError::NoToken)?;
    let line = format!("http://{address}/#{}\n", token.text());
    let explorer = Explorer::new(dataset, flags.sweeps.clone(), address, token);
    let serve = move || SERVER.serve(&listener, move |request| explorer.answer(request));
    thread::Builder::new().name(SERVER.name.into()).spawn(serve).map_err(ExploreError::NoServer)?;
    deliver(&line)?;
    // Ends with the first byte, which a signal writes.
    let _ = end.read(&mut [0]);
    Ok(())
}

/// A stream that has a byte once a signal asks for the end.
fn signals() -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
    }
    Ok(reader)
}

/// An address that no other machine reaches: of IPv4, and of IPv6 where there is no IPv4.
fn bind(port: u16) -> Result<TcpListener, ExploreError> {
    let at = |ip: IpAddr| TcpListener::bind(SocketAddr::new(ip, port));
    at(Ipv4Addr::LOCALHOST.into())
        .or_else(|error| match error.kind() {
            io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported => at(Ipv6Addr::LOCALHOST.into()),
            _ => Err(error),
        })
        .map_err(|error| ExploreError::NoPort { port, error })
}
