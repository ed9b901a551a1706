//! Functions of the C library that only the standard library's report of a panic calls.
//!
//! A panic of ours is caught, and once the process has joined nothing is printed of it (`state::join_now`). But the loader
//! would look each of these names up in every program of a job. Here they fail: without `getenv` the standard library
//! begins no backtrace, for which it needs the others.
//!
//! Each name is hidden, so that no other library binds to it. The shim's own code makes these calls through rustix, which
//! needs no function for them. `calloc` is not among them: if memory of ours ever came from it, its failure would end the
//! host program.

macro_rules! failing {
    ($result:literal: $($name:literal,)*) => {
        core::arch::global_asm!(
            ".pushsection .text.radrm_unprinted,\"ax\",%progbits",
            $(
                concat!(".weak ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ",%function"),
                concat!($name, ":"),
            )*
            #[cfg(target_arch = "x86_64")]
            concat!("mov rax, ", $result),
            #[cfg(target_arch = "aarch64")]
            concat!("mov x0, #", $result),
            "ret",
            ".popsection",
        );
    };
}

failing! { "0": "getcwd", "getenv", "realpath", }
failing! { "-1":
    "fstat64", "gettid", "lseek64", "mmap64", "munmap", "open64", "read", "readlink", "stat64", "statx", "writev",
}
