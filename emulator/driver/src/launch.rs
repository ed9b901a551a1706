//! Launches.
