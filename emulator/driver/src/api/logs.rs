//! The driver's log of errors: there is one, and nothing is ever written to it.

use core::ffi::{c_char, c_uint, c_void};

use crate::util::ffi::{Out, Text};

entry_points! {
    /// Takes a function that would be called for each entry.
    fn cuLogsRegisterCallback(_function: *mut c_void, _data: *mut c_void, out: Out<u64>) |driver| {
        out.set_if_wanted(driver.handles.next());
        Ok(())
    }

    /// Forgets that function.
    fn cuLogsUnregisterCallback(_callback: u64) |_driver| {
        Ok(())
    }

    /// The end of the log.
    fn cuLogsCurrent(out: Out<c_uint>, _flags: c_uint) |_driver| {
        out.set(0)
    }

    /// Writes the log to a file: nothing.
    fn cuLogsDumpToFile(_from: Out<c_uint>, path: Text, _flags: c_uint) |_driver| {
        path.get().map(|_| ())
    }

    /// Writes the log to memory: nothing.
    fn cuLogsDumpToMemory(_from: Out<c_uint>, text: Out<c_char>, size: Out<usize>, _flags: c_uint) |_driver| {
        size.set(0)?;
        text.set_if_wanted(0);
        Ok(())
    }
}
