//! Reasons that the plug-in cannot run.

use std::io;
use std::path::PathBuf;

use radrm_limits::LimitError;
use thiserror::Error;

use crate::api::ApiError;
use crate::store::StoreError;

/// Reason that the plug-in cannot run, as one sentence.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum KubeletError {
    #[error("the node has no name: set NODE_NAME, or give --node-name")]
    NoNode,
    #[error("`{0}` is no name of a node")]
    Node(String),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: the path of a socket has 107 bytes at most", .0.display())]
    LongPath(PathBuf),
    #[error("--segment-memory {0} is too little: a claim's segment takes 4MiB at least")]
    SegmentMemory(String),
    #[error("the system gives no thread or signal: {0}")]
    Thread(io::Error),
    #[error("the kubelet rejects this plug-in: {0}")]
    Rejected(String),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Api(#[from] ApiError),
}
