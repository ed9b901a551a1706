//! Common parts of all packages: words, scripts, and what is installed.

use super::tree;

/// Packages in one line.
pub const SUMMARY: &str = "GPU memory of any program: recorded, limited, scheduled";

/// Packages in a paragraph.
pub const DESCRIPTION: &str = "\
radrm-run shows what a program does with GPU memory and keeps it inside a
limit; radrmd places jobs of several users on the GPUs of a machine.";

/// Shell scripts of the system's packages: the package manager runs them as root.
pub mod scripts {
    /// After an installation or upgrade.
    pub const INSTALLED: &str = include_str!("../../data/package/postinst");
    /// Before a removal.
    pub const REMOVING: &str = include_str!("../../data/package/prerm");
    /// After a removal.
    pub const REMOVED: &str = include_str!("../../data/package/postrm");
}

/// Content and settings of all packages.
pub struct Release {
    /// Version of the workspace.
    pub version: String,
    /// The oldest glibc, major and minor.
    pub glibc: (u32, u32),
    /// Seconds since 1970: the time of the commit, which stands in for that of every file.
    pub time: u64,
    /// Compression level of archives, from 1 to 9.
    pub compression: u32,
    /// Files to install.
    pub tree: Vec<tree::Entry>,
}
