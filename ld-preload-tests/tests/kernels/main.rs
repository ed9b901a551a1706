//! Launches: their numbers, their times, what they keep at work, and what it costs to count them.

mod bench;
mod calibration;
mod single_launches;
mod sm_activity;
mod timings;
