//! A plug-in of Kubernetes' kubelet for dynamic resource allocation: claims get shares of a GPU's memory, and every
//! program in their containers is kept to them.
//!
//! The GPUs are published as devices whose memory claims consume (`devices`, `slices`). When a pod is about to start,
//! the kubelet asks for its claims (`server`, `plugin`); the API server says what each was granted (`api`, `claim`), and
//! a claim becomes a segment with limits and a device of the container runtime (`store`). The plug-in takes no part in
//! what runs then: the shim counts in the segment.

pub mod api;
pub mod claim;
pub mod devices;
pub mod error;
mod fence;
pub mod install;
pub mod messages;
mod options;
pub mod plugin;
pub mod quantity;
mod room;
pub mod server;
pub mod slices;
mod sockets;
pub mod store;
mod upkeep;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use radrm_limits::amount;
use radrm_limits::machine::Node;
use radrm_limits::program::libraries;
use radrm_text::output::{Priority, log};
use radrm_text::usage;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::unbounded_channel;

use crate::api::Api;
use crate::error::KubeletError;
use crate::options::Flags;
use crate::plugin::Plugin;
use crate::server::{News, Services, Socket};
use crate::sockets::Sockets;
use crate::store::{Places, Store};

/// Least memory of a claim's segment, bytes: its header takes half of it.
const MIN_SEGMENT_MEMORY: u64 = 4 << 20;

/// The program's name, in messages.
pub const NAME: &str = "radrm-kubelet-plugin";

/// Far more than the answer to a rejection takes.
const LAST_ANSWER: Duration = Duration::from_millis(500);

/// Keeps NVIDIA's older hook from adding GPUs that the claim does not have.
const NO_OTHER_GPUS: &str = "NVIDIA_VISIBLE_DEVICES=void";

/// The program, from its command line to its exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    radrm_os::descriptors::keep_from_programs();
    let flags = match usage::flags::<Flags>(arguments, NAME, "radrm-kubelet-plugin --help") {
        Ok(flags) => flags,
        Err(code) => return code,
    };
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(Priority::Error, NAME, &error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<(), KubeletError> {
    let node = flags.node()?;
    // Container runtimes mount from these paths.
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let sockets = Sockets::new(&absolute(&flags.kubelet_dir))?;
    // Two plug-ins at once would not know of each other's claims: the second one waits here.
    let _lock = sockets.lock()?;
    let machine = Node::of(flags.machine.as_deref())?;
    let shim = libraries::find(libraries::SHIM)?;
    libraries::check_preload(&shim)?;
    let folder = sockets.libraries();
    let installed = install::install(&shim, &folder)
        .map_err(|source| KubeletError::Io { path: folder.clone(), source })?;
    let context = flags.context.as_deref().map(amount::bytes).transpose()?.unwrap_or(0);
    let gpu_device = flags.gpu_device();
    let room = segment_memory(&flags.segment_memory)?;
    let places = Places {
        state: absolute(&flags.state_dir),
        cdi: absolute(&flags.cdi_dir),
        shim: installed.shim.clone(),
        preload: installed.preload,
        environment: gpu_device.iter().map(|_| NO_OTHER_GPUS.to_owned()).collect(),
        context,
        room,
    };
    let store = Store::open(places)?;
    install::sweep(&folder, store.shims().chain([installed.shim.as_path()]));
    let api = Api::new(flags.api_server.as_deref())?;
    let plugin = Arc::new(Plugin::new(api, node, machine.source, context, gpu_device, store));
    upkeep::harvest(&plugin).map_err(KubeletError::Thread)?;
    let look = upkeep::publish(&plugin).map_err(KubeletError::Thread)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .build()
        .map_err(KubeletError::Thread)?;
    let ended = runtime.block_on(serve(&sockets, plugin, &look));
    // What is being prepared may go on for a while; the kubelet asks again for what it has no answer to.
    runtime.shutdown_background();
    ended
}

/// Memory of a claim's segment, bytes.
fn segment_memory(text: &str) -> Result<u64, KubeletError> {
    let bytes = amount::host_bytes(text)?;
    // A file system without room for the header has none for any claim, and one of no size has no limit.
    match bytes < MIN_SEGMENT_MEMORY {
        true => Err(KubeletError::SegmentMemory(text.to_owned())),
        false => Ok(bytes),
    }
}

/// Answers the kubelet until this program is asked to end, or the kubelet rejects it.
async fn serve(sockets: &Sockets, plugin: Arc<Plugin>, look: &Sender<()>) -> Result<(), KubeletError> {
    let (news, mut heard) = unbounded_channel();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let (mut asked, news) = (signal(kind).map_err(KubeletError::Thread)?, news.clone());
        tokio::spawn(async move {
            asked.recv().await;
            let _ = news.send(News::Stop);
        });
    }
    let services = Services { plugin, endpoint: sockets.endpoint(), news };
    // The kubelet comes when it sees the second socket.
    tokio::spawn(server::serve(sockets.bind(Socket::Plugin)?, Socket::Plugin, services.clone()));
    tokio::spawn(server::serve(sockets.bind(Socket::Registration)?, Socket::Registration, services));
    let ended = loop {
        match heard.recv().await {
            Some(News::Registration(status)) if status.plugin_registered => {
                log(Priority::Info, NAME, "the kubelet has registered this plug-in");
                // A thread that is gone has said why.
                let _ = look.send(());
            }
            Some(News::Registration(status)) => {
                // The kubelet waits for an answer to this too.
                tokio::time::sleep(LAST_ANSWER).await;
                break Err(KubeletError::Rejected(status.error));
            }
            Some(News::Stop) | None => break Ok(()),
        }
    };
    sockets.remove();
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claims_segment_has_room_for_its_header_and_never_no_limit() {
        for little in ["0", "1KiB", "4194303"] {
            let refused = segment_memory(little).unwrap_err();
            assert!(
                refused.to_string().starts_with(&format!("--segment-memory {little} is too little")),
                "{refused}"
            );
        }
        assert_eq!(segment_memory("4MiB").unwrap(), 4 << 20);
    }
}
