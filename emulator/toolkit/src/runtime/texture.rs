//! Texture and surface objects: the driver's, with channels instead of formats and switches instead of flags.

use core::ffi::{c_float, c_int, c_uint};
use std::mem::MaybeUninit;

use radrm_emulator_ffi::{Answer, In, Out};

use super::array::Channels;
use super::runtime;
use radrm_cuda_client as driver;

/// `cudaResourceDesc`, as far as CUDA 12 has it; what CUDA 13 has behind it must be zero.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Resource {
    kind: u32,
    body: Body,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Body {
    array: u64,
    plain: Plain,
}

/// Members `linear` and `pitch2D`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Plain {
    address: u64,
    channels: Channels,
    /// Bytes of linear memory; else elements of a row, rows, and bytes of a row.
    sizes: [usize; 3],
}

/// `CUDA_RESOURCE_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DriverResource {
    kind: u32,
    body: DriverBody,
    flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
union DriverBody {
    array: u64,
    plain: DriverPlain,
    all: [u64; 16],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DriverPlain {
    address: u64,
    format: u32,
    channels: c_uint,
    sizes: [usize; 3],
}

/// `cudaTextureDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    address_modes: [u32; 3],
    filter_mode: u32,
    read_mode: u32,
    srgb: c_int,
    border: [c_float; 4],
    normalized: c_int,
    anisotropy: c_uint,
    level_filter: u32,
    level_bias: c_float,
    levels: [c_float; 2],
    no_trilinear: c_int,
    seamless_cubemap: c_int,
}

/// `CUDA_TEXTURE_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DriverSampling {
    address_modes: [u32; 3],
    filter_mode: u32,
    flags: c_uint,
    anisotropy: c_uint,
    level_filter: u32,
    level_bias: c_float,
    levels: [c_float; 2],
    border: [c_float; 4],
    reserved: [c_int; 12],
}

/// `cudaResourceViewDesc`, as far as CUDA 12 has it: format, extent, and the first and last levels and layers.
pub type View = [u64; 6];
/// `CUDA_RESOURCE_VIEW_DESC`: the same, and members that are reserved.
pub type DriverView = [u64; 14];

const _: () = assert!(size_of::<Resource>() == 64 && size_of::<DriverResource>() == 144);
const _: () = assert!(size_of::<Sampling>() == 72 && size_of::<DriverSampling>() == 104);

const LINEAR: u32 = 2;
const PITCH_2D: u32 = 3;
/// Flags of the driver, and the switch that each is.
const READ_AS_INTEGER: c_uint = 0x01;
const NORMALIZED_COORDINATES: c_uint = 0x02;
const SRGB: c_uint = 0x10;
const NO_TRILINEAR: c_uint = 0x20;
const SEAMLESS_CUBEMAP: c_uint = 0x40;
/// cudaReadModeNormalizedFloat; the other mode reads elements as they are.
const READ_NORMALIZED: u32 = 1;

impl Resource {
    fn for_driver(self) -> Answer<DriverResource> {
        let mut body = DriverBody { all: [0; 16] };
        if matches!(self.kind, LINEAR | PITCH_2D) {
            // SAFETY: the kind says that this member was written.
            let plain = unsafe { self.body.plain };
            let (format, channels) = plain.channels.format()?;
            body.plain = DriverPlain { address: plain.address, format, channels, sizes: plain.sizes };
        } else {
            // SAFETY: every other kind is a handle.
            body.array = unsafe { self.body.array };
        }
        Ok(DriverResource { kind: self.kind, body, flags: 0 })
    }

    fn of_driver(own: DriverResource) -> Answer<Self> {
        let body = if matches!(own.kind, LINEAR | PITCH_2D) {
            // SAFETY: the kind says that this member was written.
            let plain = unsafe { own.body.plain };
            let channels = Channels::of(plain.format, plain.channels)?;
            Body { plain: Plain { address: plain.address, channels, sizes: plain.sizes } }
        } else {
            // SAFETY: every other kind is a handle.
            Body { array: unsafe { own.body.array } }
        };
        Ok(Self { kind: own.kind, body })
    }
}

impl Sampling {
    fn for_driver(self) -> DriverSampling {
        let flag = |on: bool, flag: c_uint| if on { flag } else { 0 };
        DriverSampling {
            address_modes: self.address_modes,
            filter_mode: self.filter_mode,
            flags: flag(self.read_mode != READ_NORMALIZED, READ_AS_INTEGER)
                | flag(self.normalized != 0, NORMALIZED_COORDINATES)
                | flag(self.srgb != 0, SRGB)
                | flag(self.no_trilinear != 0, NO_TRILINEAR)
                | flag(self.seamless_cubemap != 0, SEAMLESS_CUBEMAP),
            anisotropy: self.anisotropy,
            level_filter: self.level_filter,
            level_bias: self.level_bias,
            levels: self.levels,
            border: self.border,
            reserved: [0; 12],
        }
    }

    fn of_driver(own: DriverSampling) -> Self {
        let is = |flag: c_uint| c_int::from(own.flags & flag != 0);
        Self {
            address_modes: own.address_modes,
            filter_mode: own.filter_mode,
            read_mode: if own.flags & READ_AS_INTEGER == 0 { READ_NORMALIZED } else { 0 },
            srgb: is(SRGB),
            border: own.border,
            normalized: is(NORMALIZED_COORDINATES),
            anisotropy: own.anisotropy,
            level_filter: own.level_filter,
            level_bias: own.level_bias,
            levels: own.levels,
            no_trilinear: is(NO_TRILINEAR),
            seamless_cubemap: is(SEAMLESS_CUBEMAP),
        }
    }
}

/// Value that a driver's function writes into a place.
fn filled<T>(call: impl FnOnce(*mut T) -> Answer) -> Answer<T> {
    let mut own = MaybeUninit::zeroed();
    call(own.as_mut_ptr())?;
    // SAFETY: the structures here are numbers and handles, of which all zeros are values too.
    Ok(unsafe { own.assume_init() })
}

runtime! {
    /// Makes a texture object.
    with_context radrm_cudaCreateTextureObject(
        out: Out<u64>, resource: In<Resource>, sampling: In<Sampling>, view: In<View>,
    ) {
        let resource = resource.get()?.for_driver()?;
        let sampling = sampling.get()?.for_driver();
        let mut whole: DriverView = [0; 14];
        let given = !view.is_null();
        if given {
            whole[..6].copy_from_slice(&view.get()?);
        }
        let view = if given { &raw const whole } else { core::ptr::null() };
        // SAFETY: descriptions in the driver's form, and a place as the caller promises.
        unsafe {
            driver::cuTexObjectCreate(out.raw(), (&raw const resource).cast(), (&raw const sampling).cast(), view.cast())
        }
    }

    /// Destroys a texture object; 0 is none.
    with_context radrm_cudaDestroyTextureObject(texture: u64) {
        // SAFETY: a handle.
        if texture == 0 { Ok(()) } else { unsafe { driver::cuTexObjectDestroy(texture) } }
    }

    /// The memory of a texture object.
    with_context radrm_cudaGetTextureObjectResourceDesc(out: Out<Resource>, texture: u64) {
        out.required()?;
        // SAFETY: a place for the driver's form.
        let own = filled(|at: *mut DriverResource| unsafe { driver::cuTexObjectGetResourceDesc(at.cast(), texture) })?;
        out.set(Resource::of_driver(own)?)
    }

    /// Sampling parameters of a texture object.
    with_context radrm_cudaGetTextureObjectTextureDesc(out: Out<Sampling>, texture: u64) {
        out.required()?;
        // SAFETY: a place for the driver's form.
        let own = filled(|at: *mut DriverSampling| unsafe { driver::cuTexObjectGetTextureDesc(at.cast(), texture) })?;
        out.set(Sampling::of_driver(own))
    }

    /// The shape that a texture object gives its memory.
    with_context radrm_cudaGetTextureObjectResourceViewDesc(out: Out<View>, texture: u64) {
        out.required()?;
        // SAFETY: a place for the driver's form.
        let own = filled(|at: *mut DriverView| unsafe { driver::cuTexObjectGetResourceViewDesc(at.cast(), texture) })?;
        out.set(std::array::from_fn(|at| own[at]))
    }

    /// Makes a surface object.
    with_context radrm_cudaCreateSurfaceObject(out: Out<u64>, resource: In<Resource>) {
        let resource = resource.get()?.for_driver()?;
        // SAFETY: a description in the driver's form, and a place as the caller promises.
        unsafe { driver::cuSurfObjectCreate(out.raw(), (&raw const resource).cast()) }
    }

    /// Destroys a surface object; 0 is none.
    with_context radrm_cudaDestroySurfaceObject(surface: u64) {
        // SAFETY: a handle.
        if surface == 0 { Ok(()) } else { unsafe { driver::cuSurfObjectDestroy(surface) } }
    }

    /// The memory of a surface object.
    with_context radrm_cudaGetSurfaceObjectResourceDesc(out: Out<Resource>, surface: u64) {
        out.required()?;
        // SAFETY: a place for the driver's form.
        let own = filled(|at: *mut DriverResource| unsafe { driver::cuSurfObjectGetResourceDesc(at.cast(), surface) })?;
        out.set(Resource::of_driver(own)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_is_the_same_after_the_drivers_form() {
        let own = Sampling {
            address_modes: [1, 2, 3],
            filter_mode: 1,
            read_mode: READ_NORMALIZED,
            srgb: 1,
            border: [0.5, 1.0, 2.0, 4.0],
            normalized: 1,
            anisotropy: 8,
            level_filter: 1,
            level_bias: 0.25,
            levels: [1.0, 3.0],
            no_trilinear: 1,
            seamless_cubemap: 0,
        };
        let driver = own.for_driver();
        assert_eq!(driver.flags, NORMALIZED_COORDINATES | SRGB | NO_TRILINEAR);
        assert_eq!(Sampling::of_driver(driver), own);
    }

    #[test]
    fn plain_memory_keeps_its_sizes_and_gets_a_format() {
        let channels = Channels::of(0x20, 2).unwrap();
        let plain = Plain { address: 0x7000, channels, sizes: [64, 32, 1024] };
        let own = Resource { kind: PITCH_2D, body: Body { plain } }.for_driver().unwrap();
        // SAFETY: the member of this kind.
        let written = unsafe { own.body.plain };
        assert_eq!((written.address, written.format, written.channels), (0x7000, 0x20, 2));
        assert_eq!(written.sizes, [64, 32, 1024]);
        // SAFETY: the member of this kind.
        let back = unsafe { Resource::of_driver(own).unwrap().body.plain };
        assert_eq!((back.address, back.channels, back.sizes), (0x7000, channels, [64, 32, 1024]));
    }
}
