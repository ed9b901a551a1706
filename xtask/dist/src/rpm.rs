//! A package for Fedora, RHEL, Rocky, SUSE.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rpm::{BuildConfig, CompressionWithLevel, Dependency, FileOptions, PackageBuilder};

use super::release::{DESCRIPTION, Release, SUMMARY, scripts};
use super::tree::{Entry, Part};

/// Folders that hold nothing of other packages: a removal takes them along.
fn own_folders(tree: &[Entry]) -> BTreeSet<PathBuf> {
    let paths = tree.iter().map(|entry| Path::new("/").join(entry.on_node()));
    let above = |path: PathBuf| path.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>();
    let is_own = |folder: &PathBuf| folder.iter().any(|name| name == "radrm");
    paths.flat_map(above).filter(is_own).collect()
}

fn options(entry: &Entry) -> Result<FileOptions> {
    let options = FileOptions::new(format!("/{}", entry.on_node()));
    let options = options.mode(rpm::FileMode::regular(u16::try_from(entry.mode())?));
    Ok(match entry.part {
        Part::Config => options.config().noreplace(),
        Part::Doc if entry.name.starts_with("LICENSE") => options.license(),
        Part::Doc => options.doc(),
        _ => options,
    }
    .into())
}

/// Writes `radrm-VERSION-1.x86_64.rpm`.
///
/// # Errors
/// It cannot be written.
pub fn write(release: &Release, out: &Path) -> Result<()> {
    let config = BuildConfig::v4()
        .compression(CompressionWithLevel::Gzip(release.compression))
        .source_date(u32::try_from(release.time)?);
    let mut package = PackageBuilder::new("radrm", &release.version, "Apache-2.0 OR MIT", "x86_64", SUMMARY);
    let (major, minor) = release.glibc;
    package
        .using_config(config)
        .release("1")
        .description(DESCRIPTION)
        .requires(Dependency::any(format!("libc.so.6(GLIBC_{major}.{minor})(64bit)")))
        .requires(Dependency::script_post("shadow-utils"))
        .recommends(Dependency::any("systemd"))
        .post_install_script(scripts::INSTALLED)
        .pre_uninstall_script(scripts::REMOVING)
        .post_uninstall_script(scripts::REMOVED);
    for folder in own_folders(&release.tree) {
        package.with_dir_entry(FileOptions::dir(folder.to_string_lossy()).permissions(0o755))?;
    }
    for entry in &release.tree {
        package.with_file_contents(entry.content.clone(), options(entry)?)?;
    }
    package.build()?.write_file(out.join(format!("radrm-{}-1.x86_64.rpm", release.version)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::BufReader;

    fn entry(part: Part, name: &str) -> Entry {
        Entry { part, name: name.to_owned(), content: name.as_bytes().to_vec() }
    }

    #[test]
    fn an_rpm_holds_the_tree_its_scripts_and_its_needs() {
        let tree = vec![
            entry(Part::Program, "radrmd"),
            entry(Part::Library, "libradrm.so"),
            entry(Part::Unit, "radrmd.service"),
            entry(Part::Slurm, "job_submit.lua"),
            entry(Part::Python, "radrm/__init__.py"),
            entry(Part::Config, "radrm.toml"),
            entry(Part::Doc, "LICENSE-MIT"),
        ];
        let release = Release { version: "1.2.3".into(), glibc: (2, 28), time: 7, compression: 1, tree };
        let place = tempfile::tempdir().unwrap();
        write(&release, place.path()).unwrap();
        let file = place.path().join("radrm-1.2.3-1.x86_64.rpm");
        let package = rpm::Package::parse(&mut BufReader::new(File::open(file).unwrap())).unwrap();
        package.verify_digests().unwrap();

        let files: Vec<_> = package.metadata.get_file_entries().unwrap();
        let find = |path: &str| {
            let found = files.iter().find(|file| file.path() == Path::new(path));
            found.unwrap_or_else(|| panic!("{path} is missing"))
        };
        assert_eq!(find("/usr/bin/radrmd").mode().permissions(), 0o755);
        assert_eq!(find("/usr/lib/systemd/system/radrmd.service").mode().permissions(), 0o644);
        assert_eq!(find("/usr/share/radrm/slurm/job_submit.lua").mode().permissions(), 0o644);
        let config = find("/etc/radrm/radrm.toml").flags();
        assert!(config.contains(rpm::FileFlags::CONFIG | rpm::FileFlags::NOREPLACE), "{config:?}");
        assert!(find("/usr/share/doc/radrm/LICENSE-MIT").flags().contains(rpm::FileFlags::LICENSE));
        let paths: BTreeSet<_> = files.iter().map(|file| file.path().to_owned()).collect();
        let own = own_folders(&release.tree);
        let expected = [
            "/etc/radrm",
            "/usr/lib/radrm",
            "/usr/lib/radrm/python",
            "/usr/lib/radrm/python/radrm",
            "/usr/share/doc/radrm",
            "/usr/share/radrm",
            "/usr/share/radrm/slurm",
        ];
        assert_eq!(own, expected.map(PathBuf::from).into());
        assert_eq!(paths.len(), release.tree.len() + own.len(), "{paths:?}");
        for file in package.files().unwrap() {
            let file = file.unwrap();
            let name = file.metadata.basename().to_owned();
            let content = file.content().unwrap_or_default();
            let is_whole = content.ends_with(name.as_bytes()) && !name.is_empty();
            assert!(is_whole || own.contains(&file.metadata.path()), "{name}");
        }

        assert_eq!(package.metadata.get_post_install_script().unwrap().script, scripts::INSTALLED);
        assert_eq!(package.metadata.get_pre_uninstall_script().unwrap().script, scripts::REMOVING);
        assert_eq!(package.metadata.get_post_uninstall_script().unwrap().script, scripts::REMOVED);
        let needs = package.metadata.get_requires().unwrap();
        assert!(needs.iter().any(|need| need.name == "libc.so.6(GLIBC_2.28)(64bit)"), "{needs:?}");
    }
}
