//! Reproducible tar archives.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};

use super::release::Release;
use super::tree::Entry;

/// A file of an archive.
pub struct File<'a> {
    /// Path in the archive, without a leading slash.
    pub path: String,
    /// Permissions.
    pub mode: u32,
    /// Content.
    pub content: &'a [u8],
}

/// Writes the relocatable tarball: it works wherever it is unpacked.
///
/// # Errors
/// It cannot be written.
pub fn tarball(release: &Release, out: &Path) -> Result<()> {
    let name = format!("radrm-{}-linux-x86_64", release.version);
    let file = |entry| -> File<'_> {
        let entry: &Entry = entry;
        File { path: format!("{name}/{}", entry.below_prefix()), mode: entry.mode(), content: &entry.content }
    };
    let bytes = tar_gz(release, release.tree.iter().map(file).collect())?;
    std::fs::write(out.join(format!("{name}.tar.gz")), bytes)?;
    Ok(())
}

/// A compressed archive with these files and the folders above them.
///
/// # Errors
/// A path is too long.
pub fn tar_gz(release: &Release, mut files: Vec<File<'_>>) -> Result<Vec<u8>> {
    let time = release.time;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let gz: GzEncoder<Vec<u8>> =
        GzBuilder::new().mtime(0).write(Vec::new(), Compression::new(release.compression));
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
        let release =
            Release { version: String::new(), glibc: (2, 28), time: 7, compression: 1, tree: Vec::new() };
        let one = tar_gz(&release, vec![file("r/bin/a"), file("r/lib/b")]).unwrap();
        let other = tar_gz(&release, vec![file("r/lib/b"), file("r/bin/a")]).unwrap();
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
