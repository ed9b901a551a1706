//! `radrm explore` as its users and their neighbours meet it: requests over a socket, and a browser.

mod made;
mod page;
mod requests;

use std::path::Path;
use std::process::{Command, Stdio};

use radrm_preload_tests::artifacts;
use radrm_preload_tests::child::{self, Ended, Running};

/// Seconds after which a server or a browser is taken to hang.
const PATIENCE: u64 = 240;

/// A server, and what its address consists of.
struct Served {
    process: Running,
    url: String,
    port: u16,
    token: String,
}

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(artifacts::file("radrm"));
    command.arg("explore").args(words).current_dir(folder).stdin(Stdio::null());
    command.env("XDG_DATA_HOME", folder.join("data")).env_remove("LD_PRELOAD").env_remove("RADRM_SOCKET");
    command
}

impl Served {
    fn start(place: &made::Place) -> Self {
        let mut process = Running::start(command(place.path(), &["--dataset", "dataset.db"]), PATIENCE);
        let url = process.line().trim_end().to_owned();
        let (address, token) = url.split_once("/#").unwrap_or_else(|| panic!("no address: {url:?}"));
        let port = address.strip_prefix("http://127.0.0.1:").and_then(|port| port.parse().ok());
        let (port, token) = (port.expect("a port"), token.to_owned());
        Self { process, url, port, token }
    }
}

fn ended(folder: &Path, words: &[&str]) -> Ended {
    child::run(command(folder, words), PATIENCE)
}
