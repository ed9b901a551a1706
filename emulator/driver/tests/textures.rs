//! Texture and surface objects, by NVIDIA's documentation and by its own tests of cuda-python.

mod common;

use std::ffi::c_void;

use common::{Cuda, alloc, begin, isolated};

const INVALID_VALUE: u32 = 1;

type Handle = *mut c_void;
const NULL: Handle = std::ptr::null_mut();

/// `CUDA_RESOURCE_DESC` of a kind: its first words.
fn resource(kind: u64, words: &[u64]) -> [u64; 18] {
    let mut resource = [0; 18];
    resource[0] = kind;
    resource[1..=words.len()].copy_from_slice(words);
    resource
}

fn texture(cuda: Cuda, resource: &[u64; 18], sampling: &[u32; 26], view: *const u64) -> Result<u64, u32> {
    let mut texture = 0_u64;
    match call!(cuda, "cuTexObjectCreate"(
        &mut texture => *mut u64, resource.as_ptr() => *const u64, sampling.as_ptr() => *const u32,
        view => *const u64))
    {
        0 => Ok(texture),
        code => Err(code),
    }
}

fn array(cuda: Cuda) -> u64 {
    // Width, height; format (8 bits, unsigned) and channels.
    let (shape, mut array) = ([1024_u64, 0, 0x01 | 1 << 32], 0_u64);
    assert_eq!(call!(cuda, "cuArrayCreate_v2"(&mut array => *mut u64, shape.as_ptr() => *const u64)), 0);
    array
}

#[test]
fn a_texture_object_gives_back_what_it_was_made_of() {
    isolated("a_texture_object_gives_back_what_it_was_made_of", &[], |cuda| {
        begin(cuda, 0);
        let (of_array, mut sampling, view) = (resource(0, &[array(cuda)]), [0_u32; 26], [7_u64; 14]);
        (sampling[0], sampling[3], sampling[25]) = (2, 1, 9);
        let made = texture(cuda, &of_array, &sampling, view.as_ptr()).expect("of an array");
        let (mut resource_out, mut sampling_out, mut view_out) = ([0_u64; 18], [0_u32; 26], [0_u64; 14]);
        let codes = [
            call!(cuda, "cuTexObjectGetResourceDesc"(resource_out.as_mut_ptr() => *mut u64, made => u64)),
            call!(cuda, "cuTexObjectGetTextureDesc"(sampling_out.as_mut_ptr() => *mut u32, made => u64)),
            call!(cuda, "cuTexObjectGetResourceViewDesc"(view_out.as_mut_ptr() => *mut u64, made => u64)),
        ];
        assert_eq!((codes, resource_out, sampling_out, view_out), ([0; 3], of_array, sampling, view));
        assert_eq!(call!(cuda, "cuSurfObjectDestroy"(made => u64)), INVALID_VALUE, "not a surface");
        let destroy = || call!(cuda, "cuTexObjectDestroy"(made => u64));
        assert_eq!((destroy(), destroy()), (0, INVALID_VALUE));
    });
}

#[test]
fn textures_are_made_of_memory_that_is_there() {
    isolated("textures_are_made_of_memory_that_is_there", &[], |cuda| {
        begin(cuda, 0);
        let memory = alloc(cuda, 4096).expect("memory");
        let (floats, sampling) = (0x20 | 1 << 32, [0_u32; 26]);
        let made = |resource: &[u64; 18], view: *const u64| texture(cuda, resource, &sampling, view);
        let plain = std::ptr::null();
        assert!(made(&resource(2, &[memory, floats, 4096]), plain).is_ok(), "linear");
        assert!(made(&resource(3, &[memory, floats, 16, 16, 256]), plain).is_ok(), "rows");
        let view = [0_u64; 14];
        for (odd, view) in [
            (resource(2, &[memory, floats, 4097]), plain),
            (resource(2, &[memory, floats, 0]), plain),
            (resource(2, &[memory, 0x77, 16]), plain),
            (resource(2, &[0xdead, floats, 16]), plain),
            (resource(2, &[memory, floats, 4096]), view.as_ptr()),
            (resource(3, &[memory, floats, 65, 16, 256]), plain),
            (resource(0, &[0xdead]), plain),
            (resource(1, &[array(cuda)]), plain),
            (resource(4, &[memory]), plain),
        ] {
            assert_eq!(made(&odd, view), Err(INVALID_VALUE), "{odd:?}");
        }
        let mut modes = sampling;
        modes[1] = 4;
        assert_eq!(texture(cuda, &resource(0, &[array(cuda)]), &modes, plain), Err(INVALID_VALUE));
    });
}

#[test]
fn surfaces_are_made_of_arrays_and_go_with_their_context() {
    isolated("surfaces_are_made_of_arrays_and_go_with_their_context", &[], |cuda| {
        begin(cuda, 0);
        let mut context = NULL;
        assert_eq!(call!(cuda, "cuCtxCreate_v2"(&mut context => *mut Handle, 0 => u32, 0 => i32)), 0);
        let (of_array, of_memory) = (
            resource(0, &[array(cuda)]),
            resource(2, &[alloc(cuda, 64).expect("memory"), 0x20 | 1 << 32, 64]),
        );
        let mut surface = 0_u64;
        let mut make = |resource: &[u64; 18]| call!(cuda, "cuSurfObjectCreate"(&mut surface => *mut u64, resource.as_ptr() => *const u64));
        assert_eq!((make(&of_memory), make(&of_array)), (INVALID_VALUE, 0));
        let ask = || {
            let mut out = [0_u64; 18];
            call!(cuda, "cuSurfObjectGetResourceDesc"(out.as_mut_ptr() => *mut u64, surface => u64))
        };
        assert_eq!(ask(), 0);
        assert_eq!(call!(cuda, "cuCtxDestroy_v2"(context => Handle)), 0);
        assert_eq!(ask(), INVALID_VALUE);
    });
}
