//! The telemetry crate's names as this crate uses them.
#![allow(dead_code)]
use core::ffi::CStr;

pub(crate) struct Writer(u64);
#[derive(Clone, Copy)]
pub(crate) struct Lane(u64);
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KernelId(pub u16);
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GpuIndex(pub u8);
#[derive(Clone, Copy)]
pub(crate) enum Bypass {
    Panicked,
    Nested,
    GraphUnknown,
}
impl Writer {
    pub(crate) fn join(_: &CStr) -> Result<Self, ()> {
        Err(())
    }
    pub(crate) fn bypass(&self, _: Bypass) {}
    pub(crate) fn kernel(&self, _: &[u8], _: KernelAttributes) -> KernelId {
        KernelId(0)
    }
    pub(crate) fn lane(&self, _: u32) -> Lane {
        Lane(0)
    }
}
impl Lane {
    pub(crate) fn index(self) -> Option<usize> {
        Some(0)
    }
    pub(crate) fn graph(self) {}
    pub(crate) fn graph_kernels(self, _: KernelId, _: u64, _: u64, _: u64, _: u64) {}
    #[inline(always)]
    pub(crate) fn launch(self, _: KernelId, _: u64, _: u64, _: u64) {}
}
pub(crate) const LANES: usize = 64;
#[derive(Clone, Copy, Default)]
pub(crate) struct KernelAttributes {
    pub registers: u32,
    pub static_shared: u32,
    pub local: u32,
    pub max_threads: u32,
}
