//! Producers and consumers that are killed at any moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use radrm_preload_tests::child::{self, Running};
use radrm_preload_tests::random::Random;

use super::{PATIENCE, program};

const SAMPLES: usize = 330;
const BATCH: usize = 8;

/// Epochs that a consumer has got: their samples, and whether it saw the end.
fn epochs(log: &Path) -> BTreeMap<u64, (Vec<usize>, bool)> {
    let mut epochs: BTreeMap<u64, (Vec<usize>, bool)> = BTreeMap::new();
    for line in std::fs::read_to_string(log).unwrap_or_default().lines() {
        if let Some(epoch) = line.strip_prefix("end ") {
            epochs.entry(epoch.parse().expect("an epoch")).or_default().1 = true;
            continue;
        }
        let mut numbers = line.split(' ').map(|word| word.parse::<usize>().expect("a number"));
        let epoch = numbers.next().expect("an epoch") as u64;
        epochs.entry(epoch).or_default().0.extend(numbers);
    }
    epochs
}

/// Checks a log; returns how many batches of the producer's size it stands for.
fn check(log: &Path, from_epoch: bool) -> usize {
    let mut samples = 0;
    for (number, (epoch, (mut got, complete))) in epochs(log).into_iter().enumerate() {
        samples += got.len();
        got.sort_unstable();
        let twice = got.windows(2).find(|pair| pair[0] == pair[1]);
        assert_eq!(twice, None, "{}: a sample of epoch {epoch} came twice", log.display());
        if complete && (from_epoch || number > 0) {
            assert_eq!(got, (0..SAMPLES).collect::<Vec<_>>(), "{}: epoch {epoch}", log.display());
        }
    }
    samples / BATCH
}

#[test]
fn each_sample_comes_once_whatever_is_killed() {
    let wanted: usize =
        std::env::var("RADRM_TEST_SHARE_BATCHES").ok().and_then(|n| n.parse().ok()).unwrap_or(6000);
    let per_epoch = SAMPLES.div_ceil(BATCH);
    let epochs_count = wanted.div_ceil(4 * per_epoch);
    let epochs_wanted = epochs_count.to_string();
    let patience = PATIENCE + wanted as u64 / 100;
    let runtime = tempfile::tempdir().expect("folder");
    let place = runtime.path();
    let (samples, batch) = (SAMPLES.to_string(), BATCH.to_string());
    let words = ["kills", &epochs_wanted, &samples, &batch, "4"];
    if program(place, "share_loader.py", &words).is_none() {
        return;
    }
    let produce = || {
        let command = program(place, "share_loader.py", &words).expect("an interpreter");
        let mut running = Running::start(command, patience);
        running.until_ready();
        running
    };
    let consume = |log: &str, size: &str, start: &str| {
        let log = place.join(log);
        let words = ["kills", log.to_str().expect("a path"), size, start, "60"];
        let command = program(place, "share_trainer.py", &words).expect("an interpreter");
        Running::start(command, patience)
    };
    let mut random = Random(7);
    let mut producer = produce();
    // The producer's own size, half, three times, and odd.
    let steady: Vec<_> = [("0", "whole"), ("4", "half"), ("24", "triple"), ("11", "odd")]
        .map(|(size, log)| {
            let mut running = consume(log, size, "epoch");
            running.until_ready();
            running
        })
        .into();
    let mut victims = Vec::new();
    let (mut producers, mut consumers) = (0, 0);
    while !producer.has_ended() {
        std::thread::sleep(Duration::from_millis(50 + random.below(400)));
        // Not while it may have ended: a new one would find nothing to resume.
        let whole = epochs(&place.join("whole")).values().filter(|(_, complete)| *complete).count();
        match random.below(3) {
            0 if producers < 12 && whole + 3 < epochs_count => {
                producer.kill();
                producers += 1;
                producer = produce();
            }
            1 if consumers < 20 && whole + 3 < epochs_count => {
                let start = if random.below(2) == 0 { "epoch" } else { "now" };
                let size = random.below(30).to_string();
                victims.push((consume(&format!("victim{consumers}"), &size, start), consumers, start));
                consumers += 1;
            }
            _ if !victims.is_empty() => {
                let (victim, ..) = &victims[random.below(victims.len() as u64) as usize];
                child::kill_group(victim.pid());
            }
            _ => {}
        }
    }
    producer.end().ok();
    let mut batches = 0;
    for (consumer, log) in steady.into_iter().zip(["whole", "half", "triple", "odd"]) {
        consumer.end().ok();
        let log = place.join(log);
        assert_eq!(
            epochs(&log).values().filter(|(_, complete)| *complete).count().to_string(),
            epochs_wanted
        );
        batches += check(&log, true);
    }
    for (victim, number, start) in victims {
        drop(victim);
        batches += check(&place.join(format!("victim{number}")), start == "epoch");
    }
    println!("{batches} batches checked; killed: {producers} producers; {consumers} consumers joined late");
    assert!(batches >= wanted && producers > 0, "{batches} batches, {producers} kills");
}

#[test]
fn the_death_of_the_producer_is_an_exception() {
    let runtime = tempfile::tempdir().expect("folder");
    let log = runtime.path().join("log");
    let log = log.to_str().expect("a path");
    let Some(producer) = program(runtime.path(), "share_loader.py", &["death", "1000000", "100", "10", "2"])
    else {
        return;
    };
    let mut producer = Running::start(producer, PATIENCE);
    producer.until_ready();
    // It waits for two consumers, so the only one waits for a batch.
    let consumer = program(runtime.path(), "share_trainer.py", &["death", log, "0", "epoch", "0"]);
    let mut consumer = Running::start(consumer.expect("an interpreter"), PATIENCE);
    consumer.until_ready();
    let began = std::time::Instant::now();
    child::kill_group(producer.pid());
    let ended = consumer.end();
    println!("the consumer ended {} ms after the kill", began.elapsed().as_millis());
    assert!(ended.stderr.contains("ProducerDied"), "{}", ended.stderr);
}
