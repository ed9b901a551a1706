//! Conformance programs, third-party clients, cross-process and fault tests.
