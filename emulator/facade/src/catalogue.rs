//! The libraries that have a stand-in, and what they export.

use std::sync::LazyLock;

include!(concat!(env!("OUT_DIR"), "/lists.rs"));

/// A library of one major version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Name under which programs look for it, for instance `libcublas.so.13`.
    pub soname: String,
    /// The part before `.so`.
    pub stem: String,
    /// Major version of CUDA that it belongs to, as far as that matters to its interface.
    pub cuda: u32,
    /// Version of its symbols, if they have one.
    pub version: Option<String>,
    /// Functions.
    pub exports: Vec<String>,
    /// Variables and their sizes in bytes.
    pub data: Vec<(String, u64)>,
}

/// All libraries, by name.
#[must_use]
pub fn libraries() -> &'static [Library] {
    static ALL: LazyLock<Vec<Library>> =
        LazyLock::new(|| LISTS.iter().map(|(soname, list)| parse(soname, list)).collect());
    &ALL
}

fn parse(soname: &str, list: &str) -> Library {
    let (stem, number) = soname.split_once(".so.").unwrap_or((soname, "0"));
    let mut library = Library {
        soname: soname.to_owned(),
        stem: stem.to_owned(),
        cuda: cuda(stem, number),
        version: None,
        exports: Vec::new(),
        data: Vec::new(),
    };
    for line in list.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["version", version] => library.version = Some(version.to_owned()),
            ["data", name, size] => library.data.push((name.to_owned(), size.parse().unwrap_or(8))),
            _ => library.exports.push(line.to_owned()),
        }
    }
    library
}

/// Libraries that count their major versions apart from CUDA.
fn cuda(stem: &str, number: &str) -> u32 {
    match (stem, number) {
        ("libcufft" | "libcusolver", "11") => 12,
        ("libcudart" | "libcublas" | "libcublasLt" | "libcupti" | "libnvrtc" | "libnvJitLink", "12") => 12,
        _ => 13,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_names_functions_and_none_twice() {
        for library in libraries() {
            assert!(library.exports.len() > 20, "{} has {}", library.soname, library.exports.len());
            let mut names = library.exports.clone();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), library.exports.len(), "{}", library.soname);
            assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')));
        }
    }

    #[test]
    fn the_major_version_of_cuda_is_told_where_interfaces_differ() {
        let cuda = |soname: &str| libraries().iter().find(|l| l.soname == soname).map(|l| l.cuda);
        assert_eq!(cuda("libcudart.so.12"), Some(12));
        assert_eq!(cuda("libcudart.so.13"), Some(13));
        assert_eq!(cuda("libcufft.so.11"), Some(12));
        assert_eq!(cuda("libnccl.so.2"), Some(13));
    }
}
