//! Inputs that the linker and the loaders take, and names that only old programs ask for.

mod common;

use std::ffi::{CStr, c_char, c_void};

use common::{begin, isolated};

type Handle = *mut c_void;

const NULL: Handle = std::ptr::null_mut();

/// The beginning of LTO-IR as `nvrtc -dlto -arch=sm_80` writes it: form 54 is toolkit 11.8's, 67 is 13.5's.
fn lto_ir(form: u8) -> Vec<u8> {
    let mut bytes = vec![0u8; 256];
    bytes[..8].copy_from_slice(&[0xed, 0x43, 0x4e, 0x7f, 1, form, 2, 0x83]);
    bytes[26..28].copy_from_slice(&800u16.to_le_bytes());
    bytes
}

#[test]
fn lto_ir_is_linked_up_to_toolkit_12_and_never_loaded() {
    const NVVM: u32 = 5;
    const INVALID_IMAGE: u32 = 200;
    isolated("lto_ir_is_linked_up_to_toolkit_12_and_never_loaded", &[], |cuda| {
        begin(cuda, 0);
        let mut state = NULL;
        assert_eq!(
            call!(cuda, "cuLinkCreate_v2"(0 => u32, NULL => Handle, NULL => Handle, &mut state => *mut Handle)),
            0
        );
        let add = |bytes: &[u8], kind: u32| {
            call!(cuda, "cuLinkAddData_v2"(state => Handle, kind => u32, bytes.as_ptr() => *const u8, bytes.len() => usize,
                NULL => Handle, 0 => u32, NULL => Handle, NULL => Handle))
        };
        assert_eq!(add(&lto_ir(67), NVVM), INVALID_IMAGE);
        assert_eq!(add(&lto_ir(57), 3), INVALID_IMAGE, "whatever it is passed for");
        assert_eq!(add(b"no code at all", NVVM), INVALID_IMAGE);
        assert_eq!(add(&lto_ir(54), NVVM), 0);
        let (mut image, mut size, mut module) = (NULL, 0usize, NULL);
        assert_eq!(
            call!(cuda, "cuLinkComplete"(state => Handle, &mut image => *mut Handle, &mut size => *mut usize)),
            0
        );
        assert_eq!(call!(cuda, "cuModuleLoadData"(&mut module => *mut Handle, image => Handle)), 0);
        for form in [54, 67] {
            let bytes = lto_ir(form);
            assert_eq!(
                call!(cuda, "cuModuleLoadData"(&mut module => *mut Handle, bytes.as_ptr() => *const u8)),
                INVALID_IMAGE
            );
        }
    });
}

#[test]
fn names_that_only_old_programs_ask_for_exist() {
    isolated("names_that_only_old_programs_ask_for_exist", &[], |cuda| {
        for name in ["cuProfilerInitialize", "cuEGLApiInit", "cuMemGetAttribute", "cuMemGetAttribute_v2"] {
            assert!(!cuda.find(name).is_null(), "{name}");
        }
        let ask = || call!(cuda, "cuProfilerInitialize"(NULL => Handle, NULL => Handle, 0 => u32));
        assert_eq!(ask(), 801, "before cuInit as a genuine driver");
        begin(cuda, 0);
        assert_eq!(ask(), 801);
    });
}

#[test]
fn dynamic_shared_memory_is_left_up_to_what_the_kernel_may_have() {
    const MAX_DYNAMIC_SHARED: u32 = 8;
    const PTX: &CStr = c".version 8.0
.target sm_70
.address_size 64
.visible .entry work() { .shared .align 4 .b8 buffer[1024]; ret; }
";
    let test = "dynamic_shared_memory_is_left_up_to_what_the_kernel_may_have";
    isolated(test, &[("RADRM_EMULATE", "A100")], |cuda| {
        begin(cuda, 0);
        let (mut module, mut work) = (NULL, NULL);
        assert_eq!(
            call!(cuda, "cuModuleLoadData"(&mut module => *mut Handle, PTX.as_ptr() => *const c_char)),
            0
        );
        assert_eq!(
            call!(cuda, "cuModuleGetFunction"(
                &mut work => *mut Handle, module => Handle, c"work".as_ptr() => *const c_char)),
            0
        );
        let left = |blocks: i32| {
            let mut bytes = 0_usize;
            let code = call!(cuda, "cuOccupancyAvailableDynamicSMemPerBlock"(
                &mut bytes => *mut usize, work => Handle, blocks => i32, 128 => i32));
            (code, bytes)
        };
        // 48 KiB for all of a block's shared memory, as long as the program asks for no more.
        assert_eq!(left(1), (0, 47 << 10));
        let set = |bytes: i32| call!(cuda, "cuFuncSetAttribute"(work => Handle, MAX_DYNAMIC_SHARED => u32, bytes => i32));
        assert_eq!(set(100 << 10), 0);
        assert_eq!(left(1), (0, 100 << 10));
        // Sixteen blocks share 164 KiB, of which the driver has one for each, and the kernel another.
        assert_eq!(left(16), (0, (164 << 10) / 16 / 128 * 128 - (2 << 10)));
        assert_eq!(left(0), (1, 0));
    });
}

/// As cuda.core's tests of a kernel's arguments expect: they destroy all contexts and ask again.
#[test]
fn parameters_of_a_kernel_need_a_context_and_their_number_does_not() {
    const INVALID_CONTEXT: u32 = 201;
    const INVALID_VALUE: u32 = 1;
    const PTX: &CStr = c".version 8.0
.target sm_70
.address_size 64
.visible .entry work(.param .u64 work_param_0, .param .u32 work_param_1) { ret; }
";
    isolated("parameters_of_a_kernel_need_a_context_and_their_number_does_not", &[], |cuda| {
        begin(cuda, 0);
        let (mut library, mut kernel) = (NULL, NULL);
        assert_eq!(
            call!(cuda, "cuLibraryLoadData"(
                &mut library => *mut Handle, PTX.as_ptr() => *const c_char, NULL => Handle, NULL => Handle, 0 => u32,
                NULL => Handle, NULL => Handle, 0 => u32)),
            0
        );
        assert_eq!(
            call!(cuda, "cuLibraryGetKernel"(
                &mut kernel => *mut Handle, library => Handle, c"work".as_ptr() => *const c_char)),
            0
        );
        let parameter = |index: usize| {
            let (mut offset, mut size) = (usize::MAX, usize::MAX);
            let code = call!(cuda, "cuKernelGetParamInfo"(
                kernel => Handle, index => usize, &mut offset => *mut usize, &mut size => *mut usize));
            (code, offset, size)
        };
        assert_eq!((parameter(0), parameter(1)), ((0, 0, 8), (0, 8, 4)));
        assert_eq!(parameter(2).0, INVALID_VALUE, "there are two");
        let mut context = NULL;
        assert_eq!(call!(cuda, "cuCtxPopCurrent_v2"(&mut context => *mut Handle)), 0);
        assert_eq!(parameter(0), (INVALID_CONTEXT, usize::MAX, usize::MAX), "nothing is written");
        let mut count = 0_usize;
        assert_eq!(call!(cuda, "cuKernelGetParamCount"(kernel => Handle, &mut count => *mut usize)), 0);
        assert_eq!(count, 2);
        assert_eq!(call!(cuda, "cuCtxPushCurrent_v2"(context => Handle)), 0);
        assert_eq!(parameter(1), (0, 8, 4));
    });
}
