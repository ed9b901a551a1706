//! Programs built with a sanitizer, and what is preloaded into them.
//!
//! AddressSanitizer's shared runtime ends a program in which another library comes before it. The shim turns this check off
//! in programs that it is loaded into (`__asan_default_options` there). What remains is done here: a runtime that the user
//! preloads stays in front, and a program that has options of its own gets the switch by its environment.

use std::fs::File;
use std::path::Path;

use super::elf::Elf;
use super::environment::Environment;

/// Variable with options of AddressSanitizer's runtime.
const OPTIONS: &str = "ASAN_OPTIONS";
/// The option that decides about the check of the order.
const ORDER: &[u8] = b"verify_asan_link_order=";
/// Turns it off.
const ANY_ORDER: &[u8] = b"verify_asan_link_order=0";

/// Beginnings of the file names of shared runtimes: GCC's, then Clang's.
const RUNTIMES: [&str; 6] =
    ["libasan.so", "libhwasan.so", "liblsan.so", "libtsan.so", "libubsan.so", "libclang_rt."];

/// Lets a program start whose own runtime checks the order. Options of the user's come later, and so hold.
pub fn allow_any_order(program: &Path, environment: &mut Environment) {
    let elf = File::open(program).ok().and_then(|file| Elf::read(&file).ok().flatten());
    let is_asan = |name: &String| name.starts_with("libasan.so") || name.starts_with("libclang_rt.asan");
    if !elf.is_some_and(|elf| elf.needed.iter().any(is_asan)) {
        return;
    }
    let own = environment.get(OPTIONS).unwrap_or_default();
    if own.windows(ORDER.len()).any(|part| part == ORDER) {
        return;
    }
    let options = if own.is_empty() { ANY_ORDER.to_vec() } else { [ANY_ORDER, own].join(&b':') };
    environment.set(OPTIONS, &options);
}

/// Puts a library into a list of `LD_PRELOAD`: in front, but behind the runtimes of sanitizers. A list that has it there
/// stays as it is.
#[must_use]
pub fn preload(list: &[u8], library: &[u8]) -> Vec<u8> {
    let separates = |byte: &u8| matches!(byte, b':' | b' ' | b'\t' | b'\n');
    let (mut at, mut place) = (0, 0);
    for item in list.split_inclusive(separates) {
        at += item.len();
        let name = item.split_last().filter(|(last, _)| separates(last)).map_or(item, |(_, name)| name);
        if is_runtime(name) {
            place = at;
        }
    }
    let (before, behind) = list.split_at(place);
    if behind.strip_prefix(library).is_some_and(|rest| rest.first().is_none_or(separates)) {
        return list.to_vec();
    }
    let mut joined = before.to_vec();
    if joined.last().is_some_and(|last| !separates(last)) {
        joined.push(b':');
    }
    joined.extend_from_slice(library);
    if !behind.is_empty() {
        joined.push(b':');
    }
    joined.extend_from_slice(behind);
    joined
}

fn is_runtime(item: &[u8]) -> bool {
    let name = item.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    RUNTIMES.iter().any(|runtime| name.starts_with(runtime.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn a_library_goes_in_front_but_behind_sanitizers() {
        for (list, joined) in [
            ("", "/r/s.so"),
            ("libx.so /y.so", "/r/s.so:libx.so /y.so"),
            ("/r/s.so:/z.so", "/r/s.so:/z.so"),
            ("/r/s.so.1", "/r/s.so:/r/s.so.1"),
            ("/lib/libasan.so.8", "/lib/libasan.so.8:/r/s.so"),
            ("libtsan.so.2:/z.so", "libtsan.so.2:/r/s.so:/z.so"),
            ("/x.so libclang_rt.asan-x86_64.so /z.so", "/x.so libclang_rt.asan-x86_64.so /r/s.so:/z.so"),
            ("libasan.so:/r/s.so:/z.so", "libasan.so:/r/s.so:/z.so"),
            ("/libasan.so.d/x.so", "/r/s.so:/libasan.so.d/x.so"),
        ] {
            assert_eq!(String::from_utf8(preload(list.as_bytes(), b"/r/s.so")).unwrap(), joined, "{list:?}");
        }
    }

    #[test]
    fn only_a_program_with_the_shared_runtime_gets_options() {
        let dir = tempfile::tempdir().unwrap();
        let compiled = |name: &str, flags: &[&str]| {
            let (source, program) = (dir.path().join("a.c"), dir.path().join(name));
            std::fs::write(&source, "int main(void) { return 0; }").unwrap();
            let mut compiler = std::process::Command::new("gcc");
            let built = compiler.args(flags).arg("-o").arg(&program).arg(&source).status();
            built.is_ok_and(|status| status.success()).then_some(program)
        };
        let options = |program: &Path, own: &str| {
            let entry = CString::new(format!("ASAN_OPTIONS={own}")).unwrap();
            let mut environment = Environment::from_entries(vec![entry]);
            allow_any_order(program, &mut environment);
            String::from_utf8(environment.get(OPTIONS).unwrap().to_vec()).unwrap()
        };
        assert_eq!(options(Path::new("/bin/sh"), "a=1"), "a=1");
        let Some(program) = compiled("shared", &["-fsanitize=address"]) else {
            eprintln!("skipped: no gcc with AddressSanitizer is here");
            return;
        };
        assert_eq!(options(&program, ""), "verify_asan_link_order=0");
        assert_eq!(options(&program, "a=1"), "verify_asan_link_order=0:a=1");
        assert_eq!(options(&program, "verify_asan_link_order=1"), "verify_asan_link_order=1");
        if let Some(program) = compiled("static", &["-fsanitize=address", "-static-libasan"]) {
            assert_eq!(options(&program, "a=1"), "a=1", "it checks no order");
        }
    }
}
