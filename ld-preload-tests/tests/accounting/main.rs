//! The shim's figures of memory are those of the emulated driver, whatever a program does and however it ends.

mod addresses;
mod calls;
mod families;
mod kill;
mod live;
mod long_run;
mod namespaces;
mod oom;
mod random;
mod ranges;
mod stack_harm;
mod stack_kinds;
mod stack_lines;
mod stack_storm;
mod stacks;
