//! The one thread that decides: it feeds `scheduler-core` with what happens and carries out what
//! that decides.
//!
//! Every start is written to disk before it is carried out, and every end after it happened, so a
//! daemon that dies at any point finds out what was going on: see [`recover`].

mod actions;
mod arrays;
mod arrivals;
mod bookings;
mod budgets;
mod change_list;
mod changes;
mod cleaning;
mod companies;
mod company_load;
mod core;
mod curves;
mod dry_run_queue;
mod dry_runs;
mod early;
mod effects;
mod ended;
mod entries;
mod entry_index;
mod epilog;
mod health;
mod idle;
mod inbox;
mod job_poller;
mod job_state;
mod jobs;
mod leaving;
mod listing;
mod loader_table;
mod loaders;
mod loads;
mod long_reads;
mod lost;
mod monitor;
mod mps;
mod mps_share;
mod needs;
mod observed;
mod outbox;
mod outside;
mod paths;
mod processes;
mod programs;
mod read_times;
mod recover;
mod requests;
mod reservation_list;
mod reservations;
mod room;
mod router;
mod rows;
mod run;
mod sharing;
mod starting;
mod steps;
mod submit;
mod suspend;
mod suspend_manager;
mod sweep;
mod target_watches;
mod targets;
#[cfg(test)]
mod tests;
mod timers;
mod together;
mod user_energy;
mod user_limits;

pub(super) use processes::segment_of;
pub(crate) use router::{Disk, Engine};
