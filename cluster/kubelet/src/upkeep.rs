//! Work beside the kubelet's requests: publishes slices, and frees the places of ended processes.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use radrm_telemetry::{Liveness, Segment};
use radrm_text::output::{Priority, log, say};

use crate::NAME;
use crate::api::ApiError;
use crate::plugin::{Plugin, PluginError};
use crate::room;
use crate::slices::Publisher;

/// Between two looks at the API server's slices: GPUs fail, and slices may be deleted.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(60);
/// After a failure, and after a registration: a kubelet that starts removes the slices of its node while it finds its
/// plug-ins.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Between two looks at the claims' processes. A segment has 1024 places, each of which a process that has ended
/// holds until then.
const HARVEST_INTERVAL: Duration = Duration::from_secs(1);

/// Keeps the slices published, as long as the process lives. What is returned makes it look at once, and again soon.
pub fn publish(plugin: &Arc<Plugin>) -> std::io::Result<Sender<()>> {
    let plugin = Arc::clone(plugin);
    let (sender, registered) = channel();
    thread::Builder::new().name("publish".into()).spawn(move || {
        let mut publisher = Publisher::new(plugin.api(), plugin.node());
        let mut reported = String::new();
        let mut looks_again = false;
        loop {
            let published = plugin
                .machine()
                .inventory()
                .map_err(PluginError::from)
                .and_then(|inventory| Ok(publisher.publish(&inventory)?));
            let pause = match published {
                Ok(changed) => {
                    if changed || !reported.is_empty() {
                        log(Priority::Info, NAME, "this node's GPUs are published");
                    }
                    reported.clear();
                    if looks_again { RETRY_INTERVAL } else { PUBLISH_INTERVAL }
                }
                Err(error) => {
                    let sentence = error.to_string();
                    // Another client's change in between is not a failure.
                    let is_conflict =
                        matches!(error, PluginError::Api(ApiError::Refused { status: 409, .. }));
                    if sentence != reported && !is_conflict {
                        say(NAME, &format!("this node's GPUs are not published: {sentence}; trying again"));
                        reported = sentence;
                    }
                    RETRY_INTERVAL
                }
            };
            looks_again = match registered.recv_timeout(pause) {
                Ok(()) => true,
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => return,
            };
        }
    })?;
    Ok(sender)
}

/// Gives places of ended processes free, as long as the process lives.
pub fn harvest(plugin: &Arc<Plugin>) -> std::io::Result<()> {
    let plugin = Arc::clone(plugin);
    thread::Builder::new().name("harvest".into()).spawn(move || {
        // Kept open: what is known of processes in other pid namespaces is in it.
        let mut open: HashMap<String, Segment> = HashMap::new();
        loop {
            let (present, room): (HashMap<String, PathBuf>, u64) = {
                let store = plugin.store();
                (store.segments().map(|(uid, path)| (uid.to_owned(), path)).collect(), store.room())
            };
            open.retain(|uid, _| present.contains_key(uid));
            for (uid, path) in present {
                if let Some(bytes) = room::empty_if_larger(&path, room) {
                    say(
                        NAME,
                        &format!(
                            "claim {uid}: its segment took {bytes} bytes, more than {room}, and was emptied"
                        ),
                    );
                }
                if !open.contains_key(&uid)
                    && let Ok(segment) = Segment::open(&path)
                {
                    open.insert(uid.clone(), segment);
                }
                if let Some(segment) = open.get(&uid) {
                    free(segment);
                }
            }
            thread::sleep(HARVEST_INTERVAL);
        }
    })?;
    Ok(())
}

/// A claim's containers can write its segment, so nothing that it says is trusted, and nothing fails.
fn free(segment: &Segment) {
    for slot in segment.slots().unwrap_or_default() {
        if slot.liveness != Liveness::Running {
            let _ = segment.harvest(&slot);
        }
    }
}
