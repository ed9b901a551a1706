//! Settings for core dumps. Numbers are those of `CUcoredumpSettings`.

use core::ffi::c_uint;
use std::collections::BTreeMap;

use radrm_cuda_abi::*;

use crate::util::ffi::Answer;

/// Dumps when a kernel fails.
const ON_EXCEPTION: c_uint = 1;
const TRIGGER_HOST: c_uint = 2;
const LIGHTWEIGHT: c_uint = 3;
/// Dumps when something is written to the pipe.
pub const USER_TRIGGER: c_uint = 4;
const FILE: c_uint = 5;
/// Name of the pipe.
pub const PIPE: c_uint = 6;
const GENERATION_FLAGS: c_uint = 7;

/// Longest text, NUL included.
pub const TEXT: usize = 1024;
/// `CU_COREDUMP_LIGHTWEIGHT_FLAGS`: no ELF images, no global, shared, local, constant and tensor memory.
const LIGHTWEIGHT_FLAGS: u32 = 0b1_0010_1111;
/// `CU_CTX_COREDUMP_ENABLE` and `CU_CTX_USER_COREDUMP_ENABLE`.
const ENABLE_FLAG: u32 = 0x20;
const ENABLE_USER_FLAG: u32 = 0x40;

/// Variables of CUDA-GDB that win over what programs set, with their attributes.
const VARIABLES: [(&str, c_uint); 6] = [
    ("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", ON_EXCEPTION),
    ("CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION", TRIGGER_HOST),
    ("CUDA_ENABLE_LIGHTWEIGHT_COREDUMP", LIGHTWEIGHT),
    ("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", USER_TRIGGER),
    ("CUDA_COREDUMP_FILE", FILE),
    ("CUDA_COREDUMP_PIPE", PIPE),
];

/// Shape of an attribute's value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One byte.
    Bool,
    /// Up to [`TEXT`] bytes.
    Text,
    /// An `int`.
    Flags,
}

/// Shape and default of an attribute.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE for an unknown one.
pub fn default_of(number: c_uint) -> Answer<(Shape, Vec<u8>)> {
    let text = |prefix: &str| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        (Shape::Text, format!("{prefix}.cuda.{}.{}", host.trim(), std::process::id()).into_bytes())
    };
    match number {
        ON_EXCEPTION | LIGHTWEIGHT | USER_TRIGGER => Ok((Shape::Bool, vec![0])),
        TRIGGER_HOST => Ok((Shape::Bool, vec![1])),
        FILE => Ok(text("core")),
        PIPE => Ok(text("corepipe")),
        GENERATION_FLAGS => Ok((Shape::Flags, vec![0; 4])),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Values of attributes by number.
#[derive(Clone, Debug, Default)]
pub struct Settings(BTreeMap<c_uint, Vec<u8>>);

impl Settings {
    /// Settings from the environment.
    pub fn of_environment() -> Self {
        let mut settings = Self::default();
        for (variable, number) in VARIABLES {
            let Ok(text) = std::env::var(variable) else { continue };
            let value = if number < FILE { vec![u8::from(text == "1")] } else { text.into_bytes() };
            settings.put(number, value);
        }
        settings
    }

    /// Settings from the flags with which a context is made.
    pub fn of_flags(flags: c_uint) -> Self {
        let mut settings = Self::default();
        if flags & (ENABLE_FLAG | ENABLE_USER_FLAG) != 0 {
            settings.put(ON_EXCEPTION, vec![1]);
        }
        if flags & ENABLE_USER_FLAG != 0 {
            settings.put(USER_TRIGGER, vec![1]);
        }
        settings
    }

    /// Sets an attribute. A lightweight dump is one with certain flags.
    pub fn put(&mut self, number: c_uint, value: Vec<u8>) {
        if number == LIGHTWEIGHT {
            let flags = if value == [1] { LIGHTWEIGHT_FLAGS } else { 0 };
            self.0.insert(GENERATION_FLAGS, flags.to_ne_bytes().to_vec());
        }
        self.0.insert(number, value);
    }

    /// The value of an attribute that was set.
    pub fn get(&self, number: &c_uint) -> Option<&Vec<u8>> {
        self.0.get(number)
    }

    /// Returns true if a switch was set to on.
    pub fn is_on(&self, number: c_uint) -> bool {
        self.0.get(&number).is_some_and(|value| *value == [1])
    }
}

/// Moment at which a registered function would be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before anything is collected.
    Start,
    /// After the file is written.
    Complete,
}

/// Core dump settings of the process.
#[derive(Debug, Default)]
pub struct CoreDumps {
    /// Settings from the environment, read when the driver was initialised.
    pub environment: Settings,
    /// Settings that the program made.
    pub settings: Settings,
    /// Registered functions by handle.
    pub callbacks: BTreeMap<u64, Moment>,
}

impl CoreDumps {
    /// Nothing set but by the environment.
    pub fn new() -> Self {
        Self { environment: Settings::of_environment(), ..Self::default() }
    }
}
