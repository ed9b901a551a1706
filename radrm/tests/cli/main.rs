//! The programs as their users start them, on drivers that are small stand-ins.

#[macro_use]
mod common;
mod cdi;
mod doctor;
mod dry_run;
mod endings;
mod guest;
mod import_ncu;
mod limits;
mod load;
mod musl;
mod python;
mod records;
mod replay;
mod signals;
