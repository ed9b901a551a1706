//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::error::KubeletError;

/// By which a pod of a DaemonSet knows its node.
const NODE: &str = "NODE_NAME";
/// Longest name of a node.
const MAX_NODE_NAME: usize = 253;

/// Give containers of this Kubernetes node shares of its GPUs
///
/// A plug-in of the kubelet for dynamic resource allocation, with the driver name radrm.dev. It publishes the node's
/// GPUs with their memory as a capacity that claims consume, and keeps every program of a claim's containers to what
/// the claim was granted. It runs as root in a pod of a DaemonSet on each node.
#[derive(Parser, Debug)]
#[command(name = "radrm-kubelet-plugin", version)]
pub(crate) struct Flags {
    /// The node's name in the cluster [default: NODE_NAME]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// The kubelet's folder, in which it looks for sockets of plug-ins
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/kubelet")]
    pub(crate) kubelet_dir: PathBuf,
    /// Folder in which the container runtime looks for devices
    #[arg(long, value_name = "FOLDER", default_value = "/var/run/cdi")]
    pub(crate) cdi_dir: PathBuf,
    /// The shared memory of claims, on a file system in memory
    #[arg(long, value_name = "FOLDER", default_value = "/run/radrm/claims")]
    pub(crate) state_dir: PathBuf,
    /// Memory of the node that the processes of a claim may take for what is counted of them, all together
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub(crate) segment_memory: String,
    /// Kind of device that the container runtime knows GPUs by; `none` if another part of the node brings GPUs into containers
    #[arg(long, value_name = "DEVICE", default_value = "nvidia.com/gpu={uuid}")]
    gpu_device: String,
    /// Memory that the driver takes for each process on a GPU: counted against the claim from the start
    #[arg(long, value_name = "SIZE")]
    pub(crate) context: Option<String>,
    /// The API server, without credentials [default: that of the cluster, with the pod's service account]
    #[arg(long, value_name = "URL")]
    pub(crate) api_server: Option<String>,
    /// The emulated machine of this file in place of the node's GPUs
    #[arg(long, value_name = "FILE")]
    pub(crate) machine: Option<PathBuf>,
}

impl Flags {
    /// The node's name, which becomes part of addresses.
    pub(crate) fn node(&self) -> Result<String, KubeletError> {
        let set = std::env::var(NODE).ok().filter(|name| !name.is_empty());
        let name = self.node_name.clone().or(set).ok_or(KubeletError::NoNode)?;
        let fits =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
        let is_name = name.len() <= MAX_NODE_NAME && name.bytes().all(fits) && !name.starts_with(['.', '-']);
        if is_name && !name.is_empty() { Ok(name) } else { Err(KubeletError::Node(name)) }
    }

    /// Name of a GPU for the container runtime, with `{uuid}` for its UUID.
    pub(crate) fn gpu_device(&self) -> Option<String> {
        Some(self.gpu_device.clone()).filter(|name| name != "none")
    }
}
