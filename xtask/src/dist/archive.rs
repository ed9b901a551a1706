//! Reproducible tar archives.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};

use super::Release;
use super::tree::{Entry, Part};

/// A file of an archive.
pub struct File<'a> {
    /// Path in the archive, without a leading slash.
    pub path: String,
    /// Permissions.
    pub mode: u32,
    /// Content.
    pub content: &'a [u8],
}

/// Where a part goes below a prefix such as `/opt/radrm`. The programs look for the libraries in `../lib/radrm`.
pub fn below_prefix(entry: &Entry) -> String {
    let folder = match entry.part {
        Part::Program => "bin",
        Part::Library => "lib/radrm",
        Part::Unit => "share/radrm/systemd",
        Part::Sysusers => "share/radrm/sysusers.d",
        Part::Tmpfiles => "share/radrm/tmpfiles.d",
        Part::Config => "share/radrm/config",
        Part::Doc => "share/doc/radrm",
    };
    format!("{folder}/{}", entry.name)
}

/// Writes the relocatable tarball: it works wherever it is unpacked.
///
/// # Errors
/// It cannot be written.
pub fn tarball(release: &Release, out: &Path) -> Result<()> {
    let name = format!("radrm-{}-linux-x86_64", release.version);
    let file = |entry| -> File<'_> {
        let entry: &Entry = entry;
        File { path: format!("{name}/{}", below_prefix(entry)), mode: entry.mode(), content: &entry.content }
    };
    let bytes = tar_gz(release.time, release.tree.iter().map(file).collect())?;
    std::fs::write(out.join(format!("{name}.tar.gz")), bytes)?;
    Ok(())
}

/// A compressed archive with these files and the folders above them.
///
/// # Errors
/// A path is too long.
pub fn tar_gz(time: u64, mut files: Vec<File<'_>>) -> Result<Vec<u8>> {
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let gz: GzEncoder<Vec<u8>> = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    let mut tar = tar::Builder::new(gz);
    let mut folders = std::collections::BTreeSet::new();
    for file in &files {
        let slashes = file.path.match_indices('/').map(|(at, _)| at + 1);
        for folder in slashes.map(|end| &file.path[..end]) {
            if folders.insert(folder.to_owned()) && folder != "./" {
                let mut header = header(time, 0o755, 0);
                header.set_entry_type(tar::EntryType::Directory);
                tar.append_data(&mut header, folder, std::io::empty())?;
            }
        }
        let mut header = header(time, file.mode, file.content.len() as u64);
        tar.append_data(&mut header, &file.path, file.content)?;
    }
    let mut gz = tar.into_inner()?;
    gz.flush()?;
    Ok(gz.finish()?)
}

fn header(time: u64, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mtime(time);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_give_the_same_bytes_in_any_order() {
        let file = |path: &str| File { path: path.to_owned(), mode: 0o644, content: b"x" };
        let one = tar_gz(7, vec![file("r/bin/a"), file("r/lib/b")]).unwrap();
        let other = tar_gz(7, vec![file("r/lib/b"), file("r/bin/a")]).unwrap();
        assert_eq!(one, other);
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&one[..]));
        let paths: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(paths, ["r/", "r/bin/", "r/bin/a", "r/lib/", "r/lib/b"]);
    }
}
