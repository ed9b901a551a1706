use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;

use super::*;
use crate::bell::Bell;

/// A producer that answers one consumer, then sends these packets at once and rings no more.
fn producer(folder: PathBuf, packets: Vec<Reply>) -> std::thread::JoinHandle<(Descriptor, Bell)> {
    let listener = Descriptor::new(sys::listen(&folder.join("case.sock")).expect("a socket"));
    std::thread::spawn(move || {
        let socket = loop {
            sys::wait(&listener, None, -1).expect("a connection");
            if let Some(socket) = sys::accept(listener.raw()).expect("a connection") {
                break Descriptor::new(socket);
            }
        };
        let bell = Bell::new().expect("memory");
        let welcome =
            Reply::Welcome { session: [1; 16], batches: 1, samples: 1, slow: Slow::Drop, gpu: NO_GPU };
        let bell_at = bell.descriptor().as_fd().try_clone_to_owned().expect("a descriptor");
        sys::send(socket.raw(), &welcome.encode(), Some(bell_at.as_fd())).expect("sent");
        for packet in packets {
            sys::send(socket.raw(), &packet.encode(), None).expect("sent");
        }
        (socket, bell)
    })
}

#[test]
fn a_consumer_does_not_sleep_on_what_has_come() {
    let above = tempfile::tempdir().expect("a folder");
    let folder = above.path().join("share");
    std::fs::DirBuilder::new().mode(0o700).create(&folder).expect("a folder");
    let dropped = || Reply::Dropped { batches: 2 };
    let running = producer(folder.clone(), vec![dropped(), dropped(), dropped(), Reply::End]);
    let config = Config {
        name: "case".to_owned(),
        folder: Some(folder),
        start: Start::Epoch,
        slow: Some(Slow::Drop),
        window: 2,
        access: Access::Shared,
    };
    let consumer = Consumer::new(config, Duration::from_secs(60)).expect("attached");
    let _producer = running.join().expect("a producer");
    // With no time to wait it looks at most twice for what is there.
    assert!(matches!(consumer.next(Duration::ZERO), Ok(Event::End)));
    assert_eq!(consumer.dropped(), 6);
}
