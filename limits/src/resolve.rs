//! From GPUs' names to GPUs, and from several lists of limits to the strictest.

use std::collections::BTreeMap;

use radrm_telemetry::ledger::{Amount, Limit};

use super::requested::{Name, RequestedLimit, RequestedLimits};
use crate::LimitError;
use radrm_os::nvml::{Gpu, Inventory};

/// The machine's GPUs, asked for only when they are needed.
pub type Gpus<'a> = dyn Fn() -> Result<Inventory, LimitError> + 'a;

/// Finds the GPUs of a list.
///
/// # Errors
/// One sentence: a GPU does not exist, is named twice or is not named clearly, or NVML does not
/// answer.
pub fn resolve(requested: &RequestedLimits, gpus: &Gpus<'_>) -> Result<Vec<Limit>, LimitError> {
    if !requested.names_gpus() {
        return Ok(requested.0.iter().map(|limit| Limit { gpu: None, amount: limit.amount }).collect());
    }
    let inventory = gpus()
        .map_err(|error| LimitError::NoLookUp { list: requested.to_string(), error: Box::new(error) })?;
    let mut found: BTreeMap<[u8; 16], &Name> = BTreeMap::new();
    let mut limits = Vec::new();
    for RequestedLimit { gpu, amount } in &requested.0 {
        let Some(name) = gpu else {
            limits.push(Limit { gpu: None, amount: *amount });
            continue;
        };
        let gpu = find(name, &inventory)?;
        if let Some(before) = found.insert(gpu.bytes, name) {
            return Err(LimitError::SameGpu(before.clone(), name.clone()));
        }
        limits.push(Limit { gpu: Some(gpu.bytes), amount: *amount });
    }
    Ok(limits)
}

/// The GPU of a name.
pub fn find<'a>(name: &Name, inventory: &'a Inventory) -> Result<&'a Gpu, LimitError> {
    let gpus = &inventory.gpus;
    let gpu = match name {
        Name::Index(index) => gpus.iter().find(|gpu| gpu.index == Some(*index)).ok_or_else(|| {
            let known = gpus.iter().filter_map(|gpu| gpu.index).map(|index| index.to_string());
            LimitError::NoGpu { index: *index, known: known.collect::<Vec<_>>().join(", ") }
        })?,
        Name::Uuid(text) => {
            let begins =
                |gpu: &&Gpu| gpu.uuid.get(..text.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(text));
            let mut fitting = gpus.iter().filter(begins);
            let gpu = fitting.next().ok_or_else(|| LimitError::NoUuid(text.clone()))?;
            if let Some(other) = fitting.next() {
                let [text, first, second] = [text, &gpu.uuid, &other.uuid].map(Clone::clone);
                return Err(LimitError::AmbiguousUuid { text, first, second });
            }
            gpu
        }
    };
    if gpu.divided {
        return Err(LimitError::Divided(name.clone()));
    }
    Ok(gpu)
}

/// The amount that a list gives for a GPU.
#[must_use]
pub fn amount_for(limits: &[Limit], gpu: &[u8; 16]) -> Option<Amount> {
    let of = |wanted: Option<[u8; 16]>| limits.iter().find(move |limit| limit.gpu == wanted);
    of(Some(*gpu)).or_else(|| of(None)).map(|limit| limit.amount)
}

/// A list that holds for every GPU what the stricter of two holds. Bytes and shares can only be
/// compared on a known GPU, which is why NVML may have to be asked.
///
/// # Errors
/// One sentence: NVML does not answer.
pub fn stricter(one: &[Limit], other: &[Limit], gpus: &Gpus<'_>) -> Result<Vec<Limit>, LimitError> {
    if one.is_empty() || other.is_empty() || one == other {
        return Ok(if one.is_empty() { other } else { one }.to_vec());
    }
    if let ([Limit { gpu: None, amount: a }], [Limit { gpu: None, amount: b }]) = (one, other)
        && let Some(amount) = smaller(*a, *b)
    {
        return Ok(vec![Limit { gpu: None, amount }]);
    }
    let inventory = gpus().map_err(|error| LimitError::NoComparison(Box::new(error)))?;
    let mut limits = Vec::new();
    for gpu in inventory.usable() {
        let bytes =
            [one, other].map(|list| amount_for(list, &gpu.bytes).map(|amount| amount.bytes(gpu.total)));
        if let Some(bytes) = bytes.into_iter().flatten().min() {
            let amount = if bytes == u64::MAX { Amount::Unlimited } else { Amount::Bytes(bytes) };
            limits.push(Limit { gpu: Some(gpu.bytes), amount });
        }
    }
    // For a GPU that NVML does not list there is no total to compare with: either holds alone.
    let rest =
        [one, other].map(|list| list.iter().find(|limit| limit.gpu.is_none()).map(|limit| limit.amount));
    let rest = match rest {
        [Some(a), Some(b)] => smaller(a, b).or(Some(a)),
        [a, b] => a.or(b),
    };
    limits.extend(rest.map(|amount| Limit { gpu: None, amount }));
    Ok(limits)
}

/// Limits on a job's own GPUs, and nothing of any other: `fence` is [`RequestedLimits::only_on`].
///
/// # Errors
/// As for [`stricter`].
pub fn fenced(limits: &[Limit], fence: &[Limit], gpus: &Gpus<'_>) -> Result<Vec<Limit>, LimitError> {
    let of_gpu =
        |limit: &Limit, amount| if limit.gpu.is_some() { Limit { amount, ..*limit } } else { *limit };
    match limits {
        [] => Ok(fence.to_vec()),
        [Limit { gpu: None, amount }] => Ok(fence.iter().map(|limit| of_gpu(limit, *amount)).collect()),
        limits => stricter(limits, fence, gpus),
    }
}

/// The amount of `cap` that some of these limits is above, if one is.
///
/// # Errors
/// [`LimitError::NoComparison`]: as for [`stricter`].
pub fn beyond(limits: &[Limit], cap: &[Limit], gpus: &Gpus<'_>) -> Result<Option<Amount>, LimitError> {
    if cap.is_empty() {
        return Ok(None);
    }
    if let ([Limit { gpu: None, amount }], [Limit { gpu: None, amount: most }]) = (limits, cap)
        && let Some(smaller) = smaller(*amount, *most)
    {
        return Ok((smaller != *amount).then_some(*most));
    }
    let inventory = gpus().map_err(|error| LimitError::NoComparison(Box::new(error)))?;
    let both = |gpu: &Gpu| Some((amount_for(limits, &gpu.bytes)?, amount_for(cap, &gpu.bytes)?, gpu.total));
    let mut compared = inventory.usable().filter_map(both);
    let above = compared.find(|(amount, most, total)| amount.bytes(*total) > most.bytes(*total));
    Ok(above.map(|(_, most, _)| most))
}

/// The smaller of two amounts, if that does not depend on the GPU.
fn smaller(one: Amount, other: Amount) -> Option<Amount> {
    match (one, other) {
        (Amount::Unlimited, amount) | (amount, Amount::Unlimited) => Some(amount),
        (Amount::Bytes(a), Amount::Bytes(b)) => Some(Amount::Bytes(a.min(b))),
        (Amount::PerMyriad(a), Amount::PerMyriad(b)) => Some(Amount::PerMyriad(a.min(b))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: Option<u32>, uuid: &str, total: u64) -> Gpu {
        let bytes = radrm_os::nvml::uuid_bytes(uuid).unwrap();
        Gpu { index, uuid: uuid.into(), bytes, total, ..Gpu::default() }
    }

    fn machine() -> Inventory {
        let mut gpus = vec![
            gpu(Some(0), "GPU-aaaa0000-0000-0000-0000-000000000000", 100),
            gpu(Some(1), "GPU-aaab0000-0000-0000-0000-000000000000", 1000),
            gpu(Some(2), "GPU-cccc0000-0000-0000-0000-000000000000", 1000),
            gpu(None, "MIG-dddd0000-0000-0000-0000-000000000000", 500),
        ];
        gpus[2].divided = true;
        Inventory { gpus, driver: String::new() }
    }

    fn limits(text: &str) -> Result<Vec<Limit>, LimitError> {
        resolve(&RequestedLimits::parse(text).unwrap(), &|| Ok(machine()))
    }

    #[test]
    fn gpus_are_found_by_number_and_by_the_beginning_of_a_uuid() {
        let found = limits("1=5MiB,gpu-AAAA=6MiB,MIG-d=7MiB,8MiB").unwrap();
        let names: Vec<_> = found.iter().map(|limit| limit.gpu.map(|gpu| gpu[..2].to_vec())).collect();
        assert_eq!(names, [Some(vec![0xaa, 0xab]), Some(vec![0xaa, 0xaa]), Some(vec![0xdd, 0xdd]), None]);
    }

    #[test]
    fn gpus_that_cannot_be_limited_are_named() {
        for (text, part) in [
            ("3=1GiB", "there is no GPU 3, only 0, 1, 2"),
            ("GPU-ffff=1GiB", "no GPU whose UUID begins with GPU-ffff"),
            ("GPU-aaa=1GiB", "fits GPU-aaaa0000"),
            ("0=1GiB,GPU-aaaa=1GiB", "0 and GPU-aaaa are the same GPU"),
            ("2=1GiB", "divided into MIG instances"),
        ] {
            let sentence = limits(text).unwrap_err().to_string();
            assert!(sentence.contains(part), "{text}: {sentence}");
        }
        let none = |text: &str| {
            resolve(&RequestedLimits::parse(text).unwrap(), &|| Err(LimitError::Nvml("it is gone".into())))
        };
        assert!(none("0=1GiB").unwrap_err().to_string().contains("NVML does not work: it is gone"));
        assert!(none("1GiB").is_ok(), "no GPU is named, so NVML is not needed");
    }

    #[test]
    fn the_stricter_of_two_lists_holds_on_every_gpu() {
        let of = |text: &str| limits(text).unwrap();
        let asked = |one: &str, other: &str| stricter(&of(one), &of(other), &|| Ok(machine())).unwrap();
        let unasked =
            |one: &str, other: &str| stricter(&of(one), &of(other), &|| Err(LimitError::NoLimit)).unwrap();
        assert_eq!(unasked("5MiB", "4MiB"), of("4MiB"));
        assert_eq!(unasked("50%", "20%"), of("20%"));
        assert_eq!(unasked("none", "20%"), of("20%"));
        assert_eq!(stricter(&[], &of("1=5MiB"), &|| Err(LimitError::NoLimit)).unwrap(), of("1=5MiB"));
        // 50 % of 1000 bytes are less than 700 bytes, of the others' totals they are less too or more.
        let both = asked("50%", "0=10b,700b");
        let bytes = |index: usize| amount_for(&both, &machine().gpus[index].bytes).unwrap();
        assert_eq!(
            (bytes(0), bytes(1), bytes(3)),
            (Amount::Bytes(10), Amount::Bytes(500), Amount::Bytes(250))
        );
        let both = asked("0=90b", "1=80b");
        let bytes = |index: usize| amount_for(&both, &machine().gpus[index].bytes);
        assert_eq!((bytes(0), bytes(1), bytes(3)), (Some(Amount::Bytes(90)), Some(Amount::Bytes(80)), None));
    }

    proptest::proptest! {
        #[test]
        fn no_combination_gives_more_than_either(a in 0_u64..2000, b in 0_u32..=10_000, c in 0_u64..2000) {
            let inventory = machine();
            let named = Limit { gpu: Some(inventory.gpus[1].bytes), amount: Amount::Bytes(c) };
            let one = [named, Limit { gpu: None, amount: Amount::Bytes(a) }];
            let other = [Limit { gpu: None, amount: Amount::PerMyriad(b) }];
            let both = stricter(&one, &other, &|| Ok(machine())).unwrap();
            for gpu in inventory.usable() {
                let of = |list: &[Limit]| amount_for(list, &gpu.bytes).unwrap().bytes(gpu.total);
                proptest::prop_assert_eq!(of(&both), of(&one).min(of(&other)));
            }
        }
    }

    #[test]
    fn a_limit_beyond_the_cap_is_found() {
        let general = |amount| vec![Limit { gpu: None, amount }];
        let beyond = |one, other| beyond(&general(one), &general(other), &|| Err(LimitError::NoLimit));
        let (five, nine) = (Amount::Bytes(5 << 30), Amount::Bytes(9 << 30));
        assert_eq!(beyond(nine, five), Ok(Some(five)));
        assert_eq!(beyond(five, nine), Ok(None));
        assert_eq!(beyond(five, five), Ok(None));
        assert_eq!(beyond(Amount::Unlimited, nine), Ok(Some(nine)));
        assert_eq!(beyond(five, Amount::Unlimited), Ok(None));
        assert!(beyond(five, Amount::PerMyriad(100)).is_err(), "without NVML they cannot be compared");
    }
}
