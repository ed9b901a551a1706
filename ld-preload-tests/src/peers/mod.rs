//! Other projects' test suites, run with and without the shim and compared test by test.
//!
//! * [`suites`]: which suites there are, one data list.
//! * [`run`]: one file of tests, on an emulated machine of its own; [`compiled`]: tests in a program of their own.
//! * [`outcome`]: what became of a test, and the class of a failure.
//! * [`reasons`]: why tests fail for which neither a computed value nor something missing is the reason, one data list.
//! * [`store`]: results that were kept, so that a suite can be run in pieces.
//! * [`table`] writes `bench/PEERS.md`; [`earlier`]: what it keeps of the page that was there.

pub mod compiled;
pub mod earlier;
pub mod outcome;
pub mod reasons;
pub mod run;
pub mod store;
pub mod suites;
pub mod table;
