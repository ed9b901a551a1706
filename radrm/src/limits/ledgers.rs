//! Where the ledgers of users and groups lie.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use radrm_telemetry::ledger::Access;

/// The ledgers of one machine. Emulated GPUs have ledgers of their own beside the machine's file:
/// what is taken of them takes nothing from the real ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ledgers {
    /// Of this computer's GPUs.
    System,
    /// Of the emulated machine in this file.
    Emulated(PathBuf),
}

impl Ledgers {
    /// Those of an emulated machine, or of the computer.
    #[must_use]
    pub fn of(machine: Option<&Path>) -> Self {
        let absolute = |file: &Path| std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        machine.map_or(Self::System, |file| Self::Emulated(absolute(file)))
    }

    /// The directory of a ledger.
    #[must_use]
    pub fn directory(&self, access: Access) -> PathBuf {
        match self {
            Self::System => access.directory(),
            Self::Emulated(file) => {
                let mut name = OsString::from(file.as_os_str());
                name.push(match access {
                    Access::User(uid) => format!(".user-{uid}"),
                    Access::Group(gid) => format!(".group-{gid}"),
                });
                PathBuf::from(name)
            }
        }
    }

    /// Whether the GPUs are emulated.
    #[must_use]
    pub fn emulated(&self) -> bool {
        matches!(self, Self::Emulated(_))
    }
}
