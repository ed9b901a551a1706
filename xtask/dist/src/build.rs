//! Programs and libraries for an older C library, their debug symbols apart.
//!
//! Zig's linker knows the symbol versions of every glibc. It comes as a wheel, as does the cargo command that uses it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use xtask::glibc;
use xtask::shell;
use xtask::venv::{self, Environment};

use super::flags::Flags;
use super::tree::{LIBRARIES, PROGRAMS};

/// The linker for older C libraries.
const ZIG: Environment = Environment::new("venv-zig", "xtask/data/requirements-zig.txt", &[]);

/// The machine that is built for.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Result of the build.
pub struct Built {
    /// A folder with the stripped files.
    pub folder: PathBuf,
    /// The glibc that all of them run on.
    pub glibc: (u32, u32),
}

/// Builds, strips and checks. Debug symbols go to `out/debug`.
///
/// # Errors
/// It does not build, or a file needs a newer glibc.
pub fn run(flags: &Flags, out: &Path) -> Result<Built> {
    let Some(floor) = parse(&flags.glibc) else { bail!("--glibc {} is no version", flags.glibc) };
    let from = if flags.native { native(flags.debug) } else { with_zig(&flags.glibc)? };
    let (folder, debug) = (out.join("stage"), out.join("debug"));
    fs::create_dir_all(&folder)?;
    fs::create_dir_all(&debug)?;
    let mut newest = (0, 0);
    for name in PROGRAMS.into_iter().chain(LIBRARIES.map(|(name, _)| name)) {
        let (file, symbols) = (folder.join(name), debug.join(format!("{name}.debug")));
        fs::copy(from.join(name), &file)
            .with_context(|| format!("{} is not built", from.join(name).display()))?;
        shell::run(shell::command("objcopy").arg("--only-keep-debug").arg(&file).arg(&symbols))?;
        shell::run(shell::command("strip").arg("--strip-unneeded").arg(&file))?;
        let link = format!("--add-gnu-debuglink={}", symbols.display());
        shell::run(shell::command("objcopy").arg(link).arg(&file))?;
        let needed = glibc::needed(&file)?.unwrap_or_default();
        if !flags.native && needed > floor {
            bail!("{name} needs glibc {}.{}, and the packages are for {}", needed.0, needed.1, flags.glibc);
        }
        // The loader would load each further one into every program of a job.
        let libraries = glibc::libraries(&file)?;
        if !flags.native && name == "libradrm.so" && libraries != ["libc.so.6"] {
            bail!("{name} needs {}, and libc is what it may need", libraries.join(", "));
        }
        let absent = glibc::absent(&file)?;
        if !absent.is_empty() {
            bail!("{name} needs {}, which glibc {} does not have", absent.join(", "), flags.glibc);
        }
        let (size, (major, minor)) = (fs::metadata(&file)?.len().div_ceil(1024), needed);
        eprintln!("xtask: {name}: {size} KiB, glibc {major}.{minor}");
        newest = newest.max(needed);
    }
    Ok(Built { folder, glibc: if flags.native { newest } else { floor } })
}

fn parse(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn native(debug: bool) -> PathBuf {
    shell::target_dir().join(if debug { "debug" } else { "release" })
}

fn with_zig(version: &str) -> Result<PathBuf> {
    let python = venv::make(&ZIG)?.context("the requirements of zig are missing")?;
    let bin = python.parent().unwrap_or(Path::new("/"));
    let path = std::env::var("PATH").unwrap_or_default();
    let target_dir = shell::target_dir().join("dist-build");
    let places = places(&target_dir)?;
    let build = |profile: &str, packages: &[&str]| {
        let mut command = shell::cargo();
        command
            .args(["zigbuild", "--profile", profile, "--locked", "--target", &format!("{TARGET}.{version}")])
            .args(packages.iter().flat_map(|package| ["-p", package]))
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("CARGO_TARGET_DIR", &target_dir)
            .env("RUSTFLAGS", remapped("--remap-path-prefix", &places))
            .env("CFLAGS", remapped("-ffile-prefix-map", &places));
        shell::run(&mut command)
    };
    let packages: Vec<_> = LIBRARIES.iter().map(|(_, package)| *package).chain(["radrm"]).collect();
    build("release", &packages)?;
    build("preload", &[shell::SHIM])?;
    let folder = target_dir.join(TARGET).join("release");
    shell::take_preload(&folder)?;
    Ok(folder)
}

/// Folders of this machine whose paths compilers write into programs, and what stands for each.
fn places(target_dir: &Path) -> Result<Vec<(PathBuf, &'static str)>> {
    let home = |variable: &str, usual: &str| {
        let set = std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        set.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(usual)))
    };
    let sysroot = shell::read(shell::command("rustc").args(["--print", "sysroot"]))?;
    let mut places = vec![
        (shell::root(), "radrm"),
        (target_dir.to_owned(), "build"),
        (PathBuf::from(sysroot.trim()), "rust"),
    ];
    places.extend(home("CARGO_HOME", ".cargo").map(|home| (home, "cargo")));
    places.extend(home("RUSTUP_HOME", ".rustup").map(|home| (home, "rustup")));
    Ok(places)
}

/// Options of a compiler that put names in the place of paths: paths of this machine are not reproducible, and do not
/// belong into a package. Of several that fit compilers take the last, which is the longest here.
fn remapped(option: &str, places: &[(PathBuf, &'static str)]) -> String {
    let mut places: Vec<_> = places.iter().collect();
    places.sort_by_key(|(path, _)| path.as_os_str().len());
    let options = places.iter().map(|(path, name)| format!("{option}={}={name}", path.display()));
    options.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Program that rustc makes of a crate that lies below the home of cargo, in a workspace, and panics.
    fn program(machine: &Path) -> Vec<u8> {
        let (home, root) = (machine.join("home"), machine.join("home/checkout"));
        for folder in [&home, &root] {
            fs::create_dir_all(folder).unwrap();
            let text = "#[inline(never)] pub fn fail(at: usize) -> u8 { let all = [1, 2]; all[at] }";
            fs::write(folder.join("part.rs"), text).unwrap();
        }
        let main = format!(
            "#[path = \"{}/part.rs\"] mod own; #[path = \"{}/part.rs\"] mod other;\n\
             fn main() {{ own::fail(std::env::args().count()); other::fail(std::env::args().count()); }}",
            root.display(),
            home.display()
        );
        fs::write(root.join("main.rs"), main).unwrap();
        let program = machine.join("program");
        let places = [(root.clone(), "radrm"), (home, "cargo")];
        let mut rustc = Command::new("rustc");
        rustc
            .args(["--edition=2024", "--crate-name=program", "-o"])
            .arg(&program)
            .args(remapped("--remap-path-prefix", &places).split(' '));
        let output = rustc.arg(root.join("main.rs")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::read(program).unwrap()
    }

    #[test]
    fn no_path_of_the_machine_is_in_a_program() {
        let [machine, other] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        let built = program(machine.path());
        let has = |text: &str| built.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(has("radrm/part.rs") && has("cargo/part.rs"), "names stand for the paths");
        assert!(!has(&machine.path().display().to_string()));
        assert!(built == program(other.path()), "another home and another folder give the same bytes");
    }

    #[test]
    fn each_home_of_a_build_is_remapped() {
        let names: Vec<_> = places(Path::new("/t")).unwrap().into_iter().map(|(_, name)| name).collect();
        for name in ["radrm", "build", "rust", "cargo", "rustup"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
    }
}
