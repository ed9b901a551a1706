//! Random sequences of calls of all families: the shim's figures are the emulator's ledger, whatever
//! the order. A failure names its seed and the shortest beginning of the sequence that shows it.

use radrm_preload_tests::{
    child, programs,
    random::Random,
    rig::{PATIENCE, Rig},
};

/// Content of a slot of `steps.c`.
#[derive(Clone, Copy, PartialEq)]
enum Held {
    Nothing,
    Plain,
    Ordered,
    Handle,
    Array,
    Mipmap,
    Host,
    Registered,
    Graph,
}

/// Steps that take or give back memory at random; every call in them succeeds.
fn sequence(seed: u64, length: usize) -> Vec<String> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let slots: Vec<char> = ('a'..='z').collect();
    let mut held = vec![Held::Nothing; slots.len()];
    let mut steps: Vec<String> =
        ["use:0", "pool:P:0", "pool:Q:0", "keep:Q:100m"].iter().map(|s| (*s).to_owned()).collect();
    for _ in 0..length {
        let at = random.below(slots.len() as u64) as usize;
        let slot = slots[at];
        let (step, now) = match held[at] {
            Held::Nothing => {
                let bytes = random.one_of(&[1, 511, 512, 4096, 100_000, 1 << 20, 3 << 20, 33 << 20])
                    + random.below(3);
                let chunks = (random.below(8) + 1) * (2 << 20);
                match random.below(14) {
                    0 | 1 => (format!("alloc:{slot}:{bytes}"), Held::Plain),
                    2 => (
                        format!("pitch:{slot}:{}:{}", random.below(2000) + 4, random.below(50) + 1),
                        Held::Plain,
                    ),
                    3 => (format!("managed:{slot}:{bytes}"), Held::Plain),
                    4 => (format!("async:{slot}:{bytes}"), Held::Ordered),
                    5 => (format!("asyncpt:{slot}:{bytes}"), Held::Ordered),
                    6 => (format!("frompool:{slot}:P:{bytes}"), Held::Ordered),
                    7 => (format!("frompool:{slot}:Q:{bytes}"), Held::Ordered),
                    8 => (format!("create:{slot}:{chunks}:0"), Held::Handle),
                    9 => (format!("thread:create.{slot}.{chunks}.0"), Held::Handle),
                    10 => {
                        (format!("array:{slot}:{}:{}", random.below(500) + 1, random.below(300)), Held::Array)
                    }
                    11 => (format!("mipmap:{slot}:256:128:{}", random.below(4) + 1), Held::Mipmap),
                    12 => {
                        if random.below(2) == 0 {
                            (format!("hostalloc:{slot}:{bytes}"), Held::Host)
                        } else {
                            (format!("register:{slot}:{}", (random.below(20) + 1) * 4096), Held::Registered)
                        }
                    }
                    _ => (format!("memgraph:{slot}:{bytes}"), Held::Graph),
                }
            }
            Held::Plain => {
                (format!("{}:{slot}", random.one_of(&["free", "free", "free", "freeasync"])), Held::Nothing)
            }
            Held::Ordered => (
                format!("{}:{slot}", random.one_of(&["freeasync", "freeasync", "freeasyncpt", "free"])),
                Held::Nothing,
            ),
            Held::Handle => (format!("release:{slot}"), Held::Nothing),
            Held::Array => (format!("freearray:{slot}"), Held::Nothing),
            Held::Mipmap => (format!("freemipmap:{slot}"), Held::Nothing),
            Held::Host => (format!("freehost:{slot}"), Held::Nothing),
            Held::Registered => (format!("unregister:{slot}"), Held::Nothing),
            Held::Graph => {
                if random.below(3) == 0 {
                    (format!("freegraph:{slot}"), Held::Nothing)
                } else {
                    (format!("launchgraph:{slot}"), Held::Graph)
                }
            }
        };
        held[at] = now;
        steps.push(step);
        let between = ["sync", "syncstream", "trim:P:0", "trim:Q:1m", "trimgraphs:0", "launch:1"];
        if random.below(5) == 0 {
            steps.push(random.one_of(&between).to_owned());
        }
    }
    steps
}

fn differences(steps: &[String]) -> Vec<String> {
    let rig = Rig::emulated("1xH200");
    let mut command = rig.launched(programs::compile("steps.c", &[]));
    command.args(steps);
    let (compared, mut wrong) = rig.outcome(child::run(command, PATIENCE)).ok().compare();
    if compared != 1 && steps.len() > 40 {
        wrong.push(format!("{compared} processes were compared"));
    }
    wrong
}

#[test]
fn random_sequences_of_all_families_agree_with_the_ledger() {
    for seed in 1..=40 {
        let steps = sequence(seed, 200);
        let wrong = differences(&steps);
        if wrong.is_empty() {
            continue;
        }
        let shortest =
            (1..=steps.len()).find(|n| !differences(&steps[..*n]).is_empty()).unwrap_or(steps.len());
        panic!(
            "seed {seed}: {}\nafter: {}",
            differences(&steps[..shortest]).join("\n"),
            steps[..shortest].join(" ")
        );
    }
}

#[test]
fn frees_by_other_threads_agree_with_the_ledger() {
    for seed in 1..=8 {
        let rig = Rig::emulated("1xH200");
        let outcome = rig.run(programs::compile("mixed_threads.c", &[]), &[&seed.to_string()]).ok();
        // Peaks depend on which thread came first between the driver's count and ours.
        let (compared, wrong) = outcome.compare();
        let wrong: Vec<&String> = wrong.iter().filter(|w| w.contains(" now: ")).collect();
        assert_eq!(compared, 1);
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
        let account = outcome.account(0);
        for (page, ledger) in account.kinds.iter().zip(&outcome.ledgers[0].gpus[0].kinds) {
            let one_call_each = 6 * (8 << 20);
            assert!(
                page.peak.0.abs_diff(ledger.requested_peak) <= one_call_each,
                "seed {seed}: {page:?} {ledger:?}"
            );
            assert!(page.now <= page.peak);
        }
    }
}
