//! GPUs that a process sees, and their addresses.

use radrm_emulator_machine::MachineSpec;

/// The machine's GPUs as this process numbers them: a list of all their numbers. Any other list is none.
pub fn numbered(spec: &MachineSpec, order: Option<&str>) -> Vec<usize> {
    let as_they_are: Vec<usize> = (0..spec.gpu.len()).collect();
    let order: Vec<usize> =
        order.unwrap_or_default().split(',').filter_map(|word| word.trim().parse().ok()).collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted == as_they_are { order } else { as_they_are }
}

/// The GPUs that `CUDA_VISIBLE_DEVICES` leaves, in its order; `all` are all that there are, as they are numbered.
///
/// As the driver reads it: entries are numbers, or beginnings of UUIDs (`GPU-...`, `MIG-...`) that
/// name exactly one GPU. The list ends before the first entry that is not valid; a GPU that is named
/// twice makes the whole list void. An unset variable leaves all GPUs, an empty one none.
pub fn visible(spec: &MachineSpec, all: &[usize], list: Option<&str>) -> Vec<usize> {
    let Some(list) = list else { return all.to_vec() };
    let mut chosen = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let Some(gpu) = named(spec, all, entry) else { break };
        if chosen.contains(&gpu) {
            return Vec::new();
        }
        chosen.push(gpu);
    }
    chosen
}

fn named(spec: &MachineSpec, all: &[usize], entry: &str) -> Option<usize> {
    let count = spec.gpu.len();
    if entry.starts_with("GPU-") || entry.starts_with("MIG-") {
        let wanted = entry.to_ascii_lowercase();
        let mut found =
            (0..count).filter(|gpu| spec.uuid_text(*gpu).to_ascii_lowercase().starts_with(&wanted));
        let first = found.next()?;
        return found.next().is_none().then_some(first);
    }
    // As atoi: what follows the digits does not count, but without digits there is no number.
    let digits = entry.find(|c: char| !c.is_ascii_digit()).unwrap_or(entry.len());
    all.get(entry[..digits].parse::<usize>().ok()?).copied()
}

/// Reads `[domain:]bus:device[.function]`, all hexadecimal.
pub(crate) fn parse_pci(text: &str) -> Option<(u32, u32, u32)> {
    let number = |t: &str| u32::from_str_radix(t, 16).ok();
    let parts: Vec<&str> = text.trim().split(':').collect();
    let (domain, bus, rest) = match parts.as_slice() {
        [domain, bus, rest] => (number(domain)?, number(bus)?, rest),
        [bus, rest] => (0, number(bus)?, rest),
        _ => return None,
    };
    let (device, function) = rest.split_once('.').unwrap_or((rest, "0"));
    (number(function)? == 0).then_some((domain, bus, number(device)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [usize; 4] = [0, 1, 2, 3];

    #[test]
    fn a_process_may_number_the_gpus_in_its_own_way() {
        let spec = MachineSpec::parse("4xT4").unwrap();
        let all = numbered(&spec, Some("2,1,0,3"));
        assert_eq!(visible(&spec, &all, None), [2, 1, 0, 3]);
        assert_eq!(visible(&spec, &all, Some("0,3")), [2, 3]);
        assert_eq!(visible(&spec, &all, Some(&spec.uuid_text(0))), [0], "a UUID is that of the GPU");
        for wrong in [None, Some(""), Some("0,0,1,2"), Some("1,0"), Some("0,1,2,4"), Some("x")] {
            assert_eq!(numbered(&spec, wrong), ALL, "{wrong:?}");
        }
    }

    #[test]
    fn visible_devices_are_read_as_the_driver_does() {
        let spec = MachineSpec::parse("4xT4").unwrap();
        let uuid = spec.uuid_text(2);
        let check =
            |list: &str, expected: &[usize]| assert_eq!(visible(&spec, &ALL, Some(list)), expected, "{list}");
        assert_eq!(visible(&spec, &ALL, None), ALL);
        check("2,3", &[2, 3]);
        check("3, 0", &[3, 0]);
        check("", &[]);
        check("-1", &[]);
        check("0,-1,1", &[0]);
        check("1,9,0", &[1]);
        check("0,0", &[]);
        check(&uuid, &[2]);
        check(&uuid[..12], &[2]);
        check(&uuid.to_uppercase(), &[2]);
        check("GPU-", &[]);
        check("NoDevFiles", &[]);
        check(&format!("0,{uuid},GPU-ffffffffffff,1"), &[0, 2]);
    }

    #[test]
    fn mig_instances_are_named_by_their_own_uuid() {
        let spec = MachineSpec::from_toml(
            "m",
            "[[gpu]]\nmodel = \"A100\"\nmig_profile = \"1g.5gb\"\nmemory_mib = 4864\nsms = 14\ncount = 2",
        )
        .unwrap();
        assert!(spec.uuid_text(1).starts_with("MIG-"));
        assert_eq!(visible(&spec, &[0, 1], Some(&spec.uuid_text(1))), [1]);
    }

    #[test]
    fn pci_addresses_are_read() {
        assert_eq!(parse_pci("0000:3d:00.0"), Some((0, 0x3d, 0)));
        assert_eq!(parse_pci("3D:00"), Some((0, 0x3d, 0)));
        assert_eq!(parse_pci("00000000:3D:00.0"), Some((0, 0x3d, 0)));
        assert_eq!(parse_pci("3d"), None);
        assert_eq!(parse_pci("0000:3d:00.1"), None);
    }
}
