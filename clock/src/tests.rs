//! Properties of the physical time and of the shipped clock.

use std::sync::OnceLock;

use proptest::prelude::*;

use crate::roofline::physical;
use crate::{Card, Cards, Clock, Collective, Link, Operands, Precision, Shape, Work};

fn cards() -> Cards {
    Cards::parse(include_str!("../../emulator/machine/data/models.toml")).expect("the emulator's list")
}

fn card(name: &str) -> Card {
    cards().find(name).expect("a card of the list").clone()
}

fn clock() -> &'static Clock {
    static SHIPPED: OnceLock<Clock> = OnceLock::new();
    SHIPPED.get_or_init(|| Clock::shipped().expect("the shipped file"))
}

fn gemm(m: f64, n: f64, k: f64, precision: Precision) -> Work {
    Work::of(Shape::Gemm { batch: 1.0, m, n, k }, Operands::of(precision))
}

/// Shapes of every kind that has a physical time, from four sizes.
fn shapes([a, b, c, d]: [f64; 4]) -> Vec<Work> {
    let half = Operands::of(Precision::Bf16);
    let single = Operands::of(Precision::F32);
    let head_dim = 128.0;
    vec![
        gemm(a, b, c, Precision::Bf16),
        gemm(a, b, c, Precision::F32),
        Work::of(
            Shape::Convolution {
                batch: d,
                channels_in: a,
                channels_out: b,
                pixels_in: c,
                pixels_out: c,
                window: 9.0,
                groups: 1.0,
            },
            single,
        ),
        Work::of(
            Shape::AttentionPrefill {
                batch: d,
                queries: a,
                keys: a,
                heads: b,
                kv_heads: b,
                head_dim,
                causal: true,
            },
            half,
        ),
        Work::of(Shape::AttentionDecode { batch: d, keys: a, heads: b, kv_heads: b, head_dim }, half),
        Work::of(Shape::Elementwise { elements: a * b, inputs: 2.0 }, single),
        Work::of(Shape::Norm { rows: a, columns: b }, single),
        Work::of(Shape::Softmax { rows: a, columns: b }, single),
        Work::of(
            Shape::Collective {
                operation: Collective::AllReduce,
                ranks: 8.0,
                bytes: a * b * c,
                link: Link::NvLink,
            },
            half,
        ),
    ]
}

fn size(most: f64) -> impl Strategy<Value = f64> {
    (0.0..most).prop_map(|power| power.exp2().floor())
}

fn sizes() -> impl Strategy<Value = [f64; 4]> {
    [size(13.0), size(13.0), size(13.0), size(6.0)]
}

proptest! {
    #[test]
    fn physical_time_grows_with_each_size(sizes in sizes(), which in 0..4_usize, cached in any::<bool>()) {
        let mut larger = sizes;
        larger[which] *= 2.0;
        let card = card("A100-80GB");
        for (small, large) in shapes(sizes).into_iter().zip(shapes(larger)) {
            let (small, large) = if cached { (small.cached(), large.cached()) } else { (small, large) };
            let time = |work: &Work| physical(work, &card).map(|physical| physical.time());
            let (before, after) = (time(&small), time(&large));
            prop_assert!(after >= before, "{small:?} {before:?} {large:?} {after:?}");
        }
    }

    #[test]
    fn a_faster_card_is_not_slower(sizes in sizes(), factor in 1.0_f64..4.0, which in 0..3_usize) {
        let slow = card("H100-80GB");
        let mut fast = slow.clone();
        match which {
            0 => fast.bandwidth_gbs *= factor,
            1 => {
                fast.tflops_fp32 *= factor;
                fast.tflops_fp16_tensor *= factor;
            }
            _ => fast.nvlink_gbs *= factor,
        }
        for work in shapes(sizes) {
            let time = |card: &Card| physical(&work, card).map(|physical| physical.time());
            prop_assert!(time(&fast) <= time(&slow), "{work:?}");
        }
    }

    #[test]
    fn a_bound_contains_its_time_and_shares_are_shares(sizes in sizes(), at in 0..14_usize) {
        let (clock, card) = (clock(), cards().gpu[at].clone());
        for work in shapes(sizes) {
            let Some(found) = clock.time(&work, &card) else { continue };
            prop_assert!(found.low <= found.time && found.time <= found.high && found.low > 0.0, "{found:?}");
            prop_assert!(found.energy_low <= found.energy && found.energy <= found.energy_high);
            prop_assert!((0.0..=1.0).contains(&found.sm_share) && (0.0..=1.0).contains(&found.dram_share));
            prop_assert!(found.coverage > 0.5 && found.coverage < 1.0);
        }
    }
}

#[test]
fn what_was_not_measured_has_no_time() {
    let clock = clock();
    let half = Operands::of(Precision::F16);
    let single = Operands::of(Precision::F32);
    let a100 = card("A100-80GB");
    let unknown = [
        Work::of(Shape::Other, single),
        Work::of(Shape::Copy { bytes: 1e6 }, single),
        Work::of(Shape::Reduction { rows: 1e3, columns: 1e3 }, single),
        Work::of(Shape::Softmax { rows: 1e3, columns: 1e3 }, half),
        Work::of(
            Shape::Convolution {
                batch: 8.0,
                channels_in: 64.0,
                channels_out: 64.0,
                pixels_in: 3136.0,
                pixels_out: 3136.0,
                window: 9.0,
                groups: 1.0,
            },
            half,
        ),
        Work::of(
            Shape::Collective { operation: Collective::AllReduce, ranks: 8.0, bytes: 1e8, link: Link::Other },
            half,
        ),
        gemm(1024.0, 1024.0, 1024.0, Precision::Tf32),
        gemm(1024.0, 1024.0, 1024.0, Precision::F64),
        // The card has no 8-bit floats.
        gemm(1024.0, 1024.0, 1024.0, Precision::F8),
        gemm(0.0, 1024.0, 1024.0, Precision::F16),
        gemm(f64::NAN, 1024.0, 1024.0, Precision::F16),
        gemm(f64::INFINITY, 1024.0, 1024.0, Precision::F16),
    ];
    for work in unknown {
        assert_eq!(clock.time(&work, &a100), None, "{work:?}");
    }
    assert!(clock.time(&gemm(1024.0, 1024.0, 1024.0, Precision::F8), &card("H100-80GB")).is_some());
    assert_eq!(clock.time(&gemm(1024.0, 1024.0, 1024.0, Precision::Bf16), &card("V100-32GB")), None);
}

#[test]
fn a_large_product_takes_what_is_known_of_the_card() {
    // cuBLAS on an H100 SXM: 700 to 800 TFLOP/s in brain floats at 8192, as many have published.
    let found = clock().time(&gemm(8192.0, 8192.0, 8192.0, Precision::Bf16), &card("H100-80GB")).unwrap();
    let expected = 2.0 * 8192.0_f64.powi(3) / 750e12;
    assert!(found.card_measured);
    assert!((found.time / expected - 1.0).abs() < 0.15, "{found:?}");
    assert!(found.sm_share > 0.9 && found.dram_share < 0.4, "{found:?}");
}

#[test]
fn any_card_comes_from_a_toml_file() {
    let text = "[[gpu]]\nid = \"X\"\ncompute_capability = \"9.0\"\nsms = 78\nclock_mhz = 1830\nbandwidth_gbs = 4000\n\
                tflops_fp32 = 40\ntflops_fp16_tensor = 148\nl2_mib = 60\npower_w = 400\nidle_power_w = 60\n";
    let x = Cards::parse(text).unwrap().gpu.remove(0);
    let found = clock().time(&gemm(4096.0, 4096.0, 4096.0, Precision::Bf16), &x).unwrap();
    assert!(!found.card_measured);
    let measured = clock().time(&gemm(4096.0, 4096.0, 4096.0, Precision::Bf16), &card("A100-80GB")).unwrap();
    let width = |one: &crate::Prediction| one.high / one.time;
    assert!(width(&found) > width(&measured), "a card without measurements has the wider bound");
    for (from, to) in [("sms = 78", "sms = 0"), ("power_w = 400", "power_w = 10"), ("= 4000", "= -1")] {
        assert!(Cards::parse(&text.replace(from, to)).is_err(), "{to}");
    }
}

#[test]
fn a_lower_power_limit_costs_time_and_saves_power() {
    let (clock, card) = (clock(), card("A100-80GB"));
    let work = gemm(8192.0, 8192.0, 8192.0, Precision::Bf16);
    let free = clock.time(&work, &card).unwrap();
    let mut before = free;
    for watts in [300.0, 250.0, 200.0, 150.0] {
        let found = clock.time(&work, &card.clone().with_power_limit(watts)).unwrap();
        assert!(found.time >= before.time, "{watts} W");
        assert!(found.energy / found.time <= watts + 1e-9, "{watts} W");
        before = found;
    }
    assert!(before.time > 1.1 * free.time);
    assert_eq!(clock.time(&work, &card.clone().with_power_limit(400.0)), Some(free));
}

#[test]
fn the_shipped_file_is_small_and_survives_itself() {
    assert!(crate::SHIPPED.len() <= 300_000, "{} bytes", crate::SHIPPED.len());
    let clock = clock();
    assert_eq!(&Clock::parse(&clock.to_json().unwrap()).unwrap(), clock);
    assert_eq!(clock.to_json().unwrap(), crate::SHIPPED, "the file is what the clock writes");
    assert!(clock.kinds().len() >= 9);
}

#[test]
fn untrusted_files_are_refused() {
    for (from, to) in [
        ("\"version\":1", "\"version\":2"),
        ("\"level\":0.9", "\"level\":1.5"),
        ("\"other\":", "\"other\":-"),
        ("\"busy\":[", "\"busy\":[9,"),
        ("\"exponent\":", "\"exponent\":-"),
        ("\"trees\":[[[", "\"trees\":[[[9"),
    ] {
        let text = crate::SHIPPED.replacen(from, to, 1);
        assert_ne!(text, crate::SHIPPED, "{from}");
        assert!(Clock::parse(&text).is_err(), "{from} -> {to}");
    }
    for text in ["", "{}", "[]", "{\"version\":1}"] {
        assert!(Clock::parse(text).is_err());
    }
}
