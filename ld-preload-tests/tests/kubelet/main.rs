//! The plug-in of Kubernetes' kubelet, with a kubelet and an API server that are part of the test.

mod api;
mod containers;
mod fence;
mod https;
mod node;
mod registration;
mod requests;
mod restart;
mod rights;
mod store_faults;
