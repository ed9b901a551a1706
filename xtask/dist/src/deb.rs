//! A Debian package.

use std::path::Path;

use anyhow::Result;

use super::archive::{File, tar_gz};
use super::release::{DESCRIPTION, Release, SUMMARY, scripts};
use super::tree::{Entry, Part};

/// Paths that differ from the other packages.
/// Debian's zsh and Debian's Python look there for what packages install.
const PLACES: [(&str, &str); 2] = [
    ("usr/share/zsh/site-functions", "usr/share/zsh/vendor-completions"),
    ("usr/lib/radrm/python", "usr/lib/python3/dist-packages"),
];

/// Path of a file in a Debian package.
fn installed(entry: &Entry) -> String {
    let path = entry.on_node();
    let moved = PLACES.iter().find_map(|(from, to)| Some(format!("./{to}{}", path.strip_prefix(from)?)));
    moved.unwrap_or_else(|| format!("./{path}"))
}

/// Writes `radrm_VERSION_amd64.deb`.
///
/// # Errors
/// It cannot be written.
pub fn write(release: &Release, out: &Path) -> Result<()> {
    let data = release.tree.iter().map(|entry| File {
        path: installed(entry),
        mode: entry.mode(),
        content: &entry.content,
    });
    let data = tar_gz(release, data.collect())?;
    let kib = release.tree.iter().map(|entry| entry.content.len().div_ceil(1024)).sum::<usize>();
    let (major, minor) = release.glibc;
    let control = format!(
        "Package: radrm\n\
         Version: {}\n\
         Architecture: amd64\n\
         Maintainer: The RADRM developers <radrm@localhost>\n\
         Installed-Size: {kib}\n\
         Depends: libc6 (>= {major}.{minor})\n\
         Recommends: systemd\n\
         Section: utils\n\
         Priority: optional\n\
         Description: {SUMMARY}\n {}\n",
        release.version,
        DESCRIPTION.replace('\n', "\n ")
    );
    let conffiles: String = release
        .tree
        .iter()
        .filter(|entry| entry.part == Part::Config)
        .map(|entry| format!("{}\n", &installed(entry)[1..]))
        .collect();
    let mut meta = vec![
        File { path: "./control".into(), mode: 0o644, content: control.as_bytes() },
        File { path: "./conffiles".into(), mode: 0o644, content: conffiles.as_bytes() },
    ];
    for (name, script) in
        [("postinst", scripts::INSTALLED), ("prerm", scripts::REMOVING), ("postrm", scripts::REMOVED)]
    {
        meta.push(File { path: format!("./{name}"), mode: 0o755, content: script.as_bytes() });
    }
    let meta = tar_gz(release, meta)?;
    let mut package = ar::Builder::new(Vec::new());
    for (name, content) in
        [("debian-binary", &b"2.0\n"[..]), ("control.tar.gz", &meta), ("data.tar.gz", &data)]
    {
        let mut header = ar::Header::new(name.into(), content.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(release.time);
        package.append(&header, content)?;
    }
    std::fs::write(out.join(format!("radrm_{}_amd64.deb", release.version)), package.into_inner()?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tree::Part;
    use super::*;

    #[test]
    fn files_lie_where_debian_looks_for_them() {
        let at = |part, name: &str| installed(&Entry { part, name: name.to_owned(), content: Vec::new() });
        assert_eq!(
            at(Part::Python, "radrm/__init__.py"),
            "./usr/lib/python3/dist-packages/radrm/__init__.py"
        );
        assert_eq!(at(Part::Share, "zsh/site-functions/_radrm"), "./usr/share/zsh/vendor-completions/_radrm");
        assert_eq!(at(Part::Library, "libradrm.so"), "./usr/lib/radrm/libradrm.so");
    }
}
