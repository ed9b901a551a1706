//! Decisions and replays, by the public interface. One program: each would be compiled with the core's generic code.

mod common;

mod admission;
mod backfill;
mod behaviour;
mod company;
mod dependencies;
mod early;
mod estimators;
mod findings;
mod forecast;
mod gathering;
mod host;
mod lab_week;
mod leaving;
mod limited;
mod other_systems;
mod planned;
mod published;
mod random_events;
mod reserved;
mod sharing;
mod targets;
mod together;
mod unknown;
mod user_limits;
