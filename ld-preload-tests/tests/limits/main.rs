//! Limits of memory and of launches, and the commands that set and show them.

mod audit;
mod calibrate;
mod commands;
mod containers;
mod entry_points;
mod environment;
mod evasions;
mod fence;
mod host;
mod hostile;
mod kill;
mod life;
mod mps;
mod mps_genuine;
mod mps_third;
mod objects;
mod reasons;
mod recorded;
mod reported;
mod rights;
mod surroundings;
mod targets;
mod throttle;
mod throttle_node;
mod users;
mod variables;
