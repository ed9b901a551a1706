//! An interposer that only forwards: the floor under any shim.
