use super::*;
use proptest::prelude::*;

fn position() -> impl Strategy<Value = Position> {
    (any::<u64>(), any::<u64>()).prop_map(|(epoch, index)| Position { epoch, index })
}

fn slow() -> impl Strategy<Value = Slow> {
    prop_oneof![Just(Slow::Wait), Just(Slow::Drop), Just(Slow::Spill)]
}

fn request() -> impl Strategy<Value = Request> {
    let start = prop_oneof![
        Just(Start::Epoch),
        Just(Start::Now),
        (position(), any::<u64>()).prop_map(|(position, order)| Start::At { position, order }),
    ];
    let hello = (any::<u16>(), any::<[u8; 16]>(), start, proptest::option::of(slow()), 2u8..=64).prop_map(
        |(version, session, start, slow, window)| Request::Hello { version, session, start, slow, window },
    );
    prop_oneof![
        hello,
        Just(Request::Want),
        any::<u64>().prop_map(|lease| Request::Release { lease }),
        any::<u64>().prop_map(|epoch| Request::Skip { epoch }),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let info = any::<[u64; 6]>().prop_map(|[samples, before, after, data, description, gpu]| Info {
        samples,
        before,
        after,
        data,
        description,
        gpu,
    });
    let batch = (any::<u64>(), any::<u64>(), position(), info)
        .prop_map(|(lease, region, position, info)| Reply::Batch(Batch { lease, region, position, info }));
    prop_oneof![
        batch,
        (any::<[u8; 16]>(), any::<u64>(), any::<u64>(), slow(), any::<[u8; 16]>()).prop_map(
            |(session, batches, samples, slow, gpu)| Reply::Welcome { session, batches, samples, slow, gpu }
        ),
        (any::<u16>(), ".{0,100}").prop_map(|(code, text)| Reply::Refused { code, text }),
        any::<(u64, u64)>().prop_map(|(region, bytes)| Reply::Region { region, bytes }),
        any::<(u64, u64)>().prop_map(|(region, bytes)| Reply::Gpu { region, bytes }),
        any::<u64>().prop_map(|region| Reply::Forget { region }),
        any::<(u64, u64)>().prop_map(|(epoch, batches)| Reply::EpochEnd { epoch, batches }),
        any::<u64>().prop_map(|batches| Reply::Dropped { batches }),
        Just(Reply::End),
        ".{0,100}".prop_map(|text| Reply::Failed { text }),
    ]
}

proptest! {
    #[test]
    fn requests_are_read_as_they_were_written(request in request()) {
        let packet = request.encode();
        prop_assert!(packet.len() <= MAX_BYTES);
        prop_assert_eq!(Request::decode(&packet), Ok(request));
        for length in 0..packet.len() {
            prop_assert!(Request::decode(&packet[..length]).is_err());
        }
        prop_assert_eq!(Request::decode(&[&packet[..], &[0]].concat()), Err(BadMessage::Length));
    }

    #[test]
    fn replies_are_read_as_they_were_written(reply in reply()) {
        let packet = reply.encode();
        prop_assert!(packet.len() <= MAX_BYTES);
        prop_assert_eq!(Reply::decode(&packet), Ok(reply));
    }

    #[test]
    fn any_packet_is_read_to_an_end(packet in proptest::collection::vec(any::<u8>(), 0..MAX_BYTES)) {
        if let Ok(request) = Request::decode(&packet) {
            prop_assert_eq!(request.encode(), packet.clone());
        }
        if let Ok(reply) = Reply::decode(&packet) {
            prop_assert_eq!(reply.encode(), packet);
        }
    }
}

#[test]
fn a_long_text_is_cut_between_letters() {
    let reply = Reply::Failed { text: "ü".repeat(MAX_TEXT) };
    let packet = reply.encode();
    assert_eq!(Reply::decode(&packet), Ok(Reply::Failed { text: "ü".repeat(MAX_TEXT / 2) }));
}
