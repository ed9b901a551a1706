//! The two interfaces of the control daemon.
//!
//! Protocol 2 is a shell of text commands. Protocol 3 (NVIDIA's "MPS v3", driver 615 and newer) has commands of the form
//! `module verb`, named servers, namespaces below these and SM partitions
//! (<https://docs.nvidia.com/deploy/mps/latest/mpsv3-interface.html>). A daemon is of one of them, from its start on; the control
//! program follows the daemon that runs.

use std::path::Path;
use std::process::Stdio;

use super::control::{Control, PID_FILE, Silence};

/// Variable that selects the protocol of a daemon that is started. It goes before the option `-p`.
pub const VERSION_VARIABLE: &str = "CUDA_MPS_PROTOCOL_VERSION";

/// Directories from that of a namespace up to the daemon's own.
const SERVER_AND_NAMESPACE: usize = 3;

/// Columns of the list of servers: name, uid, pid, status, pipe directory, devices, contexts.
const SERVER_COLUMNS: usize = 7;

/// Form of lists that are read here.
pub(super) const CSV: &str = "--format=csv,noheader";

/// Interface of a control daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Text commands.
    V2,
    /// Servers, namespaces and SM partitions by name.
    V3,
}

impl Protocol {
    /// Reads `2` or `3`.
    ///
    /// # Errors
    /// A sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "2" => Ok(Self::V2),
            "3" => Ok(Self::V3),
            _ => Err(format!("`{text}` is no protocol of MPS: 2 or 3")),
        }
    }

    /// As it is written.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }

    /// Newest protocol that the control program of this machine has.
    ///
    /// # Errors
    /// [`Silence`]: the program is not installed, or cannot be run.
    pub fn offered() -> Result<Self, Silence> {
        Control::new(Path::new("/"), None)?.offers()
    }
}

impl Control {
    /// Newest protocol that the control program has, by its help on protocol 3.
    ///
    /// # Errors
    /// [`Silence`].
    pub fn offers(&self) -> Result<Protocol, Silence> {
        // A program without protocol 3 takes these options for a mistake, with any exit code.
        let (_, help) = self.run(&["-p", "3", "-h"], Stdio::null())?;
        Ok(of_help(&help))
    }

    /// The daemon whose clients meet it in a directory: its own pipe directory, or one of a server or namespace below that.
    ///
    /// # Errors
    /// [`Silence`]: none answers.
    pub fn meeting_in(pipe: &Path) -> Result<Self, Silence> {
        let control = Self::new(pipe, None)?;
        // The sockets of servers and namespaces are for clients: a command there may never be answered.
        let folders = || pipe.ancestors().take(SERVER_AND_NAMESPACE);
        let own = folders().find(|folder| folder.join(PID_FILE).exists()).unwrap_or(pipe);
        if control.offers()? == Protocol::V3 {
            let newest = Self::new(own, None)?.by(Protocol::V3);
            if newest.is_alive()? {
                return Ok(newest);
            }
        }
        control.ask("get_server_list").map(|_| control)
    }

    /// The daemon that runs in the pipe directory, with the protocol that it has; `None`: there is none.
    ///
    /// # Errors
    /// [`Silence`] of another kind than that there is none.
    pub fn running(&self, offered: Protocol) -> Result<Option<Self>, Silence> {
        let candidates = [Protocol::V3, Protocol::V2].into_iter().filter(|p| p.number() <= offered.number());
        for protocol in candidates {
            let control = self.clone().by(protocol);
            if control.is_alive()? {
                return Ok(Some(control));
            }
        }
        Ok(None)
    }
}

/// Returns true if this is a list of servers, which may be empty, and no sentence of a daemon that does not understand the
/// command: an exit code does not tell.
pub(super) fn is_server_list(text: &str) -> bool {
    text.lines().filter(|line| !line.trim().is_empty()).all(|line| line.split(',').count() >= SERVER_COLUMNS)
}

/// Reads the help that the program prints when it is asked for that of protocol 3.
fn of_help(help: &str) -> Protocol {
    let has = |module: &str| {
        help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == module)
    };
    match has("server") && has("namespace") {
        true => Protocol::V3,
        false => Protocol::V2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_help_that_lists_servers_and_namespaces_is_of_protocol_3() {
        let third = "Modules: server, namespace, client, device, sm-partition, feature\n";
        assert_eq!(of_help(third), Protocol::V3);
        for second in
            ["", "usage: nvidia-cuda-mps-control [-d | -f]\n", "starts a server\n", "namespaces, servers\n"]
        {
            assert_eq!(of_help(second), Protocol::V2, "{second}");
        }
    }

    #[test]
    fn a_sentence_is_no_list_of_servers() {
        assert!(
            is_server_list("")
                && is_server_list("training,1000,48201,Ready,/run/nvidia-mps/training,GPU-a,-\n")
        );
        assert!(!is_server_list("Cannot find MPS control daemon process\n"));
        assert!(!is_server_list("Unknown command \"server\"\n"));
    }

    #[test]
    fn a_protocol_is_2_or_3() {
        assert_eq!(Protocol::parse("3"), Ok(Protocol::V3));
        assert_eq!(Protocol::parse("2").map(Protocol::number), Ok(2));
        for text in ["", "auto", "4", "v3"] {
            assert!(Protocol::parse(text).is_err(), "{text}");
        }
    }
}
