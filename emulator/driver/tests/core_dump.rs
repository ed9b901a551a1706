//! Core dump attributes and callbacks, by NVIDIA's documentation.

mod common;

use std::ffi::{CStr, c_void};

use common::{begin, isolated};

const INVALID_VALUE: u32 = 1;

type Handle = *mut c_void;
const NULL: Handle = std::ptr::null_mut();

#[test]
fn core_dump_attributes_are_remembered() {
    isolated("core_dump_attributes_are_remembered", &[], |cuda| {
        begin(cuda, 0);
        let get = |global: bool, number: u32| {
            let (mut value, mut size) = ([0u8; 1024], 1024usize);
            let place = &mut value;
            let code = if global {
                call!(cuda, "cuCoredumpGetAttributeGlobal"(number => u32, place => *mut [u8; 1024], &mut size => *mut usize))
            } else {
                call!(cuda, "cuCoredumpGetAttribute"(number => u32, place => *mut [u8; 1024], &mut size => *mut usize))
            };
            assert_eq!(code, 0);
            CStr::from_bytes_until_nul(&value).unwrap().to_str().unwrap().to_owned()
        };
        let set = |global: bool, number: u32, value: &[u8]| {
            let mut size = value.len();
            if global {
                call!(cuda, "cuCoredumpSetAttributeGlobal"(number => u32, value.as_ptr() => *const u8, &mut size => *mut usize))
            } else {
                call!(cuda, "cuCoredumpSetAttribute"(number => u32, value.as_ptr() => *const u8, &mut size => *mut usize))
            }
        };
        assert!(get(true, 5).starts_with("core.cuda.") && get(false, 6).starts_with("corepipe.cuda."));
        assert_eq!((get(false, 1), get(false, 2)), (String::new(), "\u{1}".to_owned()));
        assert_eq!(set(true, 5, b"everywhere\0"), 0);
        assert_eq!((get(true, 5), get(false, 5)), ("everywhere".into(), "everywhere".into()));
        assert_eq!(
            (set(false, 5, b"here"), get(false, 5), get(true, 5)),
            (0, "here".into(), "everywhere".into())
        );
        assert_eq!((set(false, 4, &[1]), set(true, 4, &[1]), set(true, 9, &[1])), (800, 0, INVALID_VALUE));
        assert_eq!(set(true, 6, b"pipe\0"), 800, "user triggers are on");
        let mut size = 0usize;
        call!(cuda, "cuCoredumpGetAttribute"(7 => u32, NULL => Handle, &mut size => *mut usize));
        assert_eq!(size, 4);
        let code = call!(cuda, "cuCoredumpSetAttribute"(5 => u32, NULL => Handle, &mut size => *mut usize));
        assert_eq!((code, size), (0, 1024), "without a value only the size is given");
        // A context that was made for dumps has them on.
        let mut context = NULL;
        assert_eq!(call!(cuda, "cuCtxCreate_v2"(&mut context => *mut Handle, 0x20 => u32, 0 => i32)), 0);
        assert_eq!((get(false, 1), get(true, 1)), ("\u{1}".to_owned(), String::new()));
    });
}

#[test]
fn the_environment_decides_core_dumps() {
    let environment = [("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1"), ("CUDA_COREDUMP_FILE", "there")];
    isolated("the_environment_decides_core_dumps", &environment, |cuda| {
        begin(cuda, 0);
        let (value, mut size) = (b"here\0", 5usize);
        let code = call!(cuda, "cuCoredumpSetAttributeGlobal"(
            5 => u32, value.as_ptr() => *const u8, &mut size => *mut usize));
        assert_eq!(code, 0);
        let (mut found, mut on, mut size) = ([0u8; 6], 0u8, 6usize);
        let code = call!(cuda, "cuCoredumpGetAttribute"(
            5 => u32, found.as_mut_ptr() => *mut u8, &mut size => *mut usize));
        assert_eq!((code, &found), (0, b"there\0"));
        let code = call!(cuda, "cuCoredumpGetAttributeGlobal"(1 => u32, &mut on => *mut u8, &mut size => *mut usize));
        assert_eq!((code, on), (0, 1));
    });
}

extern "C" fn dumped(_data: *mut c_void, _pid: i32, _device: i32) {}

#[test]
fn functions_for_core_dumps_are_registered_once() {
    isolated("functions_for_core_dumps_are_registered_once", &[], |cuda| {
        begin(cuda, 0);
        type Function = extern "C" fn(*mut c_void, i32, i32);
        let (mut start, mut complete) = (NULL, NULL);
        let code = call!(cuda, "cuCoredumpRegisterStartCallback"(
            dumped => Function, NULL => Handle, &mut start => *mut Handle));
        assert_eq!(code, 0);
        let code = call!(cuda, "cuCoredumpRegisterCompleteCallback"(
            dumped => Function, NULL => Handle, &mut complete => *mut Handle));
        assert!(code == 0 && start != complete);
        let none = call!(cuda, "cuCoredumpRegisterStartCallback"(
            NULL => Handle, NULL => Handle, NULL => Handle));
        assert_eq!(none, INVALID_VALUE);
        let deregister = |handle: Handle| call!(cuda, "cuCoredumpDeregisterStartCallback"(handle => Handle));
        assert_eq!(
            [deregister(complete), deregister(start), deregister(start)],
            [INVALID_VALUE, 0, INVALID_VALUE]
        );
        assert_eq!(call!(cuda, "cuCoredumpDeregisterCompleteCallback"(complete => Handle)), 0);
    });
}
