//! Ports for servers that a test kills and starts again.

use std::{fs, net::TcpListener};

use super::getrandom;

/// Ports that are free at the same time, for servers that are started again and again. They are below those that the
/// kernel gives to connections (`ip_local_port_range`): while a server is down, no client of any test can get its port.
///
/// # Panics
/// If there are none.
pub fn free_ports(count: usize) -> Vec<u16> {
    const FIRST: u16 = 10_000;
    let mut bytes = [0; 2];
    getrandom(&mut bytes);
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768_u16);
    let room = end.saturating_sub(FIRST).max(1);
    let offset = u16::from_ne_bytes(bytes) % room;
    let ports = (0..room).map(|at| FIRST + (offset + at) % room);
    let free = ports.filter_map(|port| Some((port, TcpListener::bind(("127.0.0.1", port)).ok()?)));
    let listeners: Vec<_> = free.take(count).collect();
    assert_eq!(listeners.len(), count, "no ports are free");
    listeners.into_iter().map(|(port, _)| port).collect()
}
