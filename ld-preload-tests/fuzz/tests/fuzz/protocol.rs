//! Requests to radrmd and its answers.

use std::io::{Cursor, Read, Write};

use bolero::check;
use radrm_fuzz::{input, text};
use radrm_protocol::job_ref::JobRef;
use radrm_protocol::limits::ReserveRow;
use radrm_protocol::spec::Spec;
use radrm_protocol::wire::{self, Request, Response};

/// Frames of requests and of answers.
fn frames() -> Vec<Vec<u8>> {
    let spec = Spec {
        command: vec!["python3".into(), "train.py".into()],
        cwd: "/home/ann".into(),
        environment: vec!["A=1".into()],
        array: Some("0-9%2".parse().expect("an array")),
        ..Spec::default()
    };
    let jobs = vec![JobRef { job: 7, index: Some(3) }];
    let requests = [
        Request::Submit(Box::new(spec.clone())),
        Request::Estimate(Box::new(spec)),
        Request::Queue { all: true, ended: 3, merge: true, first: 9 },
        Request::Cancel { jobs: jobs.clone() },
        Request::Hold { jobs, held: true },
        Request::Nodes,
        Request::Drain { gpu: "0".into(), drained: true, reason: Some("fan".into()) },
        Request::Limits { user: Some("ann".into()) },
        Request::SetLimit { scope: "user:ann".into(), name: "gpus".into(), value: Some("4".into()) },
        Request::Reserve(Box::new(ReserveRow {
            users: vec!["ann".into()],
            until: "2026-12-24 08:00".into(),
            ..ReserveRow::default()
        })),
    ];
    let answers = [
        Response::Jobs(vec![wire::JobRow::default()]),
        Response::Job(Box::default(), vec![wire::Line::default()]),
        Response::Nodes(Box::default()),
        Response::Refused("why".into()),
    ];
    let mut frames = Vec::new();
    let mut add = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = Vec::new();
        write(&mut frame);
        frames.push(frame);
    };
    requests.iter().for_each(|request| add(&|frame| wire::write(frame, request).expect("written")));
    answers.iter().for_each(|answer| add(&|frame| wire::write(frame, answer).expect("written")));
    frames
}

#[test]
fn frames_of_the_socket() {
    let wholes = frames();
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        let frame = input(&wholes, bytes);
        let _ = wire::read::<Response>(&mut &frame[..]);
        let mut rest = &frame[..];
        let Ok(Some(length)) = wire::read_length(&mut rest) else { return };
        match wire::read_request(&mut rest, length) {
            Ok(Request::Submit(spec) | Request::Estimate(spec)) => {
                let _ = spec.check();
                let _ = spec.array.as_ref().map(|array| array.tasks().take(100).count());
            }
            Ok(_) => {}
            // A sentence for the user: no line of its own, of bounded length.
            Err(error) => assert!(error.to_string().len() < 1000, "{error}"),
        }
    });
}

/// A peer that says one thing and takes everything.
struct Peer(Cursor<Vec<u8>>);

impl Read for Peer {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn greetings() {
    let wholes = [wire::HELLO.to_vec()];
    check!().with_max_len(32).for_each(|bytes: &[u8]| {
        let _ = wire::greet(&mut Peer(Cursor::new(input(&wholes, bytes))));
    });
}

#[test]
fn words_of_command_lines() {
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        let word = text(&["12_3", "0-9,20-40:4%8", "1-12:00:00", "90s"], bytes);
        if let Ok(job) = word.parse::<JobRef>() {
            assert_eq!(job.to_string().parse(), Ok(job));
        }
        if let Ok(array) = word.parse::<radrm_protocol::array::Array>() {
            assert!(array.tasks().take(100).count() > 0);
        }
        let _ = radrm_protocol::span::milliseconds(&word);
    });
}
