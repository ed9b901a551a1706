//! Estimators against published measurements, and against runs that are unlike all others. One program: all read the
//! same tables.

#[path = "published/dry_runs.rs"]
mod dry_runs;
mod published;
#[path = "published/sharing.rs"]
mod sharing;
#[path = "published/shift.rs"]
mod shift;
#[path = "published/sites.rs"]
mod sites;
#[path = "published/timm.rs"]
mod timm;

mod early;
mod interference;
mod memory;
mod outliers;
