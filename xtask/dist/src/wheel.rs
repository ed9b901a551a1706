//! A Python wheel: pip puts its scripts into `bin` and its data below the prefix, which is the tree that the programs
//! expect.

use std::fmt::Write as _;
use std::io::{Cursor, Write as _};
use std::path::Path;

use anyhow::Result;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::links;
use super::release::{Release, SUMMARY};
use super::tree::{Part, README};

/// Writes `radrm-VERSION-py3-none-manylinux_A_B_x86_64.whl`.
///
/// # Errors
/// It cannot be written.
pub fn write(release: &Release, out: &Path) -> Result<()> {
    let Release { version, glibc: (major, minor), .. } = release;
    let tag = format!("py3-none-manylinux_{major}_{minor}_x86_64");
    let (data, info) = (format!("radrm-{version}.data"), format!("radrm-{version}.dist-info"));
    let mut files: Vec<(String, u32, Vec<u8>)> = Vec::new();
    for entry in &release.tree {
        let path = match entry.part {
            Part::Program => format!("{data}/scripts/{}", entry.name),
            // Beside the environment's other modules.
            Part::Python => entry.name.clone(),
            Part::Doc if entry.name.starts_with("LICENSE") => {
                files.push((format!("{info}/licenses/{}", entry.name), entry.mode(), entry.content.clone()));
                format!("{data}/data/{}", entry.below_prefix())
            }
            _ => format!("{data}/data/{}", entry.below_prefix()),
        };
        files.push((path, entry.mode(), entry.content.clone()));
    }
    let wheel = format!(
        "Wheel-Version: 1.0\nGenerator: radrm-dist ({version})\nRoot-Is-Purelib: false\nTag: {tag}\n"
    );
    files.push((format!("{info}/WHEEL"), 0o644, wheel.into_bytes()));
    let readme = release.tree.iter().find(|entry| entry.name == README);
    let readme = readme.map_or("", |entry| std::str::from_utf8(&entry.content).unwrap_or_default());
    // Shown on pages that have no file beside it.
    files.push((format!("{info}/METADATA"), 0o644, metadata(version, &links::alone(readme)).into_bytes()));
    files.sort();
    let mut record = String::new();
    for (path, _, content) in &files {
        let _ = writeln!(record, "{path},sha256={},{}", digest(content), content.len());
    }
    let _ = writeln!(record, "{info}/RECORD,,");
    files.push((format!("{info}/RECORD"), 0o644, record.into_bytes()));
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (path, mode, content) in &files {
        // The default time of an entry is that of the format's beginning, whatever the clock says.
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(release.compression.into()))
            .last_modified_time(zip::DateTime::default())
            .unix_permissions(*mode);
        zip.start_file(path, options)?;
        zip.write_all(content)?;
    }
    let bytes = zip.finish()?.into_inner();
    std::fs::write(out.join(format!("radrm-{version}-{tag}.whl")), bytes)?;
    Ok(())
}

fn metadata(version: &str, readme: &str) -> String {
    format!(
        "Metadata-Version: 2.4\n\
         Name: radrm\n\
         Version: {version}\n\
         Summary: {SUMMARY}\n\
         License-Expression: Apache-2.0 OR MIT\n\
         License-File: LICENSE-APACHE\n\
         License-File: LICENSE-MIT\n\
         Requires-Python: >=3.9\n\
         Classifier: Operating System :: POSIX :: Linux\n\
         Classifier: Environment :: GPU :: NVIDIA CUDA\n\
         Description-Content-Type: text/markdown\n\n{readme}"
    )
}

/// SHA-256 as RECORD has it: base64 for URLs, without padding.
fn digest(content: &[u8]) -> String {
    use base64::Engine as _;
    use sha2::{Digest as _, Sha256};
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(Sha256::digest(content))
}

#[cfg(test)]
mod tests {
    use super::super::tree::Entry;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_wheel_holds_the_module_the_programs_and_a_record_of_all() {
        let entry =
            |part, name: &str| Entry { part, name: name.to_owned(), content: name.as_bytes().to_vec() };
        let tree = vec![
            entry(Part::Program, "radrm-run"),
            entry(Part::Library, "libradrm.so"),
            entry(Part::Python, "radrm/__init__.py"),
            entry(Part::Doc, "LICENSE-MIT"),
            Entry { content: b"see [this](install.md)".to_vec(), ..entry(Part::Doc, "README.md") },
        ];
        let release = Release { version: "1.2.3".into(), glibc: (2, 28), time: 7, compression: 1, tree };
        let place = tempfile::tempdir().unwrap();
        write(&release, place.path()).unwrap();
        let file = place.path().join("radrm-1.2.3-py3-none-manylinux_2_28_x86_64.whl");
        let mut wheel = zip::ZipArchive::new(std::fs::File::open(file).unwrap()).unwrap();
        let expected = [
            "radrm-1.2.3.data/data/lib/radrm/libradrm.so",
            "radrm-1.2.3.data/data/share/doc/radrm/LICENSE-MIT",
            "radrm-1.2.3.data/data/share/doc/radrm/README.md",
            "radrm-1.2.3.data/scripts/radrm-run",
            "radrm-1.2.3.dist-info/METADATA",
            "radrm-1.2.3.dist-info/RECORD",
            "radrm-1.2.3.dist-info/WHEEL",
            "radrm-1.2.3.dist-info/licenses/LICENSE-MIT",
            "radrm/__init__.py",
        ];
        let description =
            std::io::read_to_string(wheel.by_name("radrm-1.2.3.dist-info/METADATA").unwrap()).unwrap();
        assert!(description.ends_with("\n\nsee this"), "{description}");
        let names: BTreeSet<String> = wheel.file_names().map(str::to_owned).collect();
        assert_eq!(names, expected.map(str::to_owned).into());
        let record = std::io::read_to_string(wheel.by_name(expected[5]).unwrap()).unwrap();
        let recorded: BTreeSet<_> = record.lines().filter_map(|line| Some(line.split_once(',')?.0)).collect();
        assert_eq!(recorded, expected.into());
        assert_eq!(wheel.by_name(expected[3]).unwrap().unix_mode().map(|mode| mode & 0o777), Some(0o755));
    }
}
