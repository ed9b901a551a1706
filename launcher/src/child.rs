//! Starting the program so that it finds everything as `radrm-run` found it.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use radrm_limits::program::environment::Environment;

use super::agent;
use super::dry_run::files::Confinement;
use super::inherited::Inherited;
use super::vfork;

/// Reason that the program did not start.
#[derive(Debug)]
pub enum NotStarted {
    /// The system could make no further process, or no pipe.
    NoProcess(io::Error),
    /// The file exists but cannot be executed, or an error of that sort.
    NotExecutable(io::Error),
    /// There is no such program.
    NotFound,
}

/// Program to execute: pointers into arguments and environment, both null-terminated.
pub(crate) struct Program<'a> {
    arguments: Vec<*const libc::c_char>,
    entries: Vec<*const libc::c_char>,
    /// Entered first.
    confinement: Option<&'a Confinement>,
}

impl Program<'_> {
    /// Number of pointers that the C library may copy to hand a script to the shell.
    pub(crate) fn pointers(&self) -> usize {
        self.arguments.len() + 1
    }

    /// Executes it in this process. Only async-signal-safe calls, and no memory is written but the stack and `errno`; an
    /// error goes to `errors`.
    pub(crate) fn exec(&self, inherited: &Inherited, errors: RawFd) -> ! {
        let is_entered = self.confinement.is_none_or(Confinement::enter);
        inherited.restore_in_child();
        if is_entered {
            self.exec_entered();
        }
        report_error(errors);
        // SAFETY: ends this process.
        unsafe { libc::_exit(127) }
    }

    /// Returns only where it could not be executed.
    fn exec_entered(&self) {
        // SAFETY: both lists are null-terminated and live until exec; execvpe searches PATH and
        // runs a script without `#!` by the shell, which is what env, nohup and timeout do.
        unsafe { libc::execvpe(self.arguments[0], self.arguments.as_ptr(), self.entries.as_ptr()) };
    }
}

/// Writes the number of the last system error to `errors`: one write that is atomic at this size.
pub(crate) fn report_error(errors: RawFd) {
    // SAFETY: plain system calls; the bytes live here.
    unsafe {
        let bytes = (*libc::__errno_location()).to_ne_bytes();
        libc::write(errors, bytes.as_ptr().cast(), bytes.len());
    }
}

/// Starts `argv[0]`, looked up in `PATH` as a shell does, and returns its process id once the
/// program is really running. With several environments it is started once in each, by a process whose id is returned.
///
/// The child stays in the process group, the session and the directory, keeps limits, umask and
/// open files, and has the mask and the dispositions of `inherited`. With a `confinement` it runs in that. It does not die when
/// this process dies.
///
/// # Errors
/// [`NotStarted`]; no child is left behind.
pub fn start(
    argv: &[CString],
    environments: &[Environment],
    inherited: &Inherited,
    confinement: Option<&Confinement>,
) -> Result<libc::pid_t, NotStarted> {
    let program = |environment: &Environment| Program {
        arguments: pointers(argv),
        entries: pointers(environment.entries()),
        confinement,
    };
    let programs: Vec<Program<'_>> = environments.iter().map(program).collect();
    let (mut reader, writer) = pipe().map_err(NotStarted::NoProcess)?;

    let pid = match programs.as_slice() {
        [one] => vfork::start(one, inherited, writer.as_raw_fd()),
        all => fork_agent(all, inherited, &writer),
    };
    let pid = pid.map_err(NotStarted::NoProcess)?;
    drop(writer);

    let mut bytes = [0_u8; 4];
    match reader.read_exact(&mut bytes) {
        // End of file: exec closed the child's end.
        Err(_) => Ok(pid),
        Ok(()) => {
            let mut status = 0;
            // SAFETY: our own child, not waited for yet; it is about to leave by _exit.
            while unsafe { libc::waitpid(pid, &mut status, 0) } == -1
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
            let error = io::Error::from_raw_os_error(i32::from_ne_bytes(bytes));
            Err(if error.raw_os_error() == Some(libc::ENOENT) {
                NotStarted::NotFound
            } else {
                NotStarted::NotExecutable(error)
            })
        }
    }
}

/// Starts the process between this one and several programs. It lives on, so it gets a memory of its own.
fn fork_agent(programs: &[Program<'_>], inherited: &Inherited, errors: &File) -> io::Result<libc::pid_t> {
    // SAFETY: this process has one thread, so the child may go on.
    match unsafe { libc::fork() } {
        0 => agent::run(programs, inherited, errors.as_raw_fd()),
        pid if pid < 0 => Err(io::Error::last_os_error()),
        pid => Ok(pid),
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

fn pipe() -> io::Result<(File, File)> {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: two fresh descriptors that nothing else owns.
    Ok(unsafe { (File::from_raw_fd(fds[0]), File::from_raw_fd(fds[1])) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::Held;
    use std::os::unix::fs::PermissionsExt;

    fn run(argv: &[&str]) -> Result<libc::c_int, NotStarted> {
        let inherited = Inherited::take().unwrap();
        let _held = Held::all().unwrap();
        let argv: Vec<CString> = argv.iter().map(|word| CString::new(*word).unwrap()).collect();
        let pid = start(&argv, &[Environment::inherited()], &inherited, None)?;
        let mut status = 0;
        // SAFETY: our own child; the status lives here.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status), "{status:#x}");
        Ok(libc::WEXITSTATUS(status))
    }

    #[test]
    fn a_script_without_an_interpreter_gets_all_its_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "test \"$#\" = 40000 && test \"$1$2\" = 01 && exit 7").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let numbers: Vec<String> = (0..40000).map(|number: u32| number.to_string()).collect();
        let argv = [script.to_str().unwrap()].into_iter().chain(numbers.iter().map(String::as_str));
        assert_eq!(run(&argv.collect::<Vec<_>>()).unwrap(), 7);
    }

    #[test]
    fn why_a_program_did_not_start_is_known() {
        assert!(matches!(run(&["no-such-program-anywhere"]), Err(NotStarted::NotFound)));
        assert!(
            matches!(run(&["/"]), Err(NotStarted::NotExecutable(error)) if error.raw_os_error() == Some(libc::EACCES))
        );
        assert_eq!(run(&["true"]).unwrap(), 0);
    }
}
