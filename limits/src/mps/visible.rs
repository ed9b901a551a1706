//! GPUs that a program will see.

use radrm_os::nvml::{Gpu, Inventory};

use super::warnings::text;
use crate::program::environment::Environment;

/// The variable that says it.
pub const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// The variable that says how they are numbered.
const ORDER: &str = "CUDA_DEVICE_ORDER";

/// The GPUs that a program with this environment sees, as [`gpus`] finds them.
#[must_use]
pub fn seen<'a>(inventory: &'a Inventory, environment: &Environment) -> Option<Vec<&'a Gpu>> {
    // An empty variable hides all GPUs.
    let visible = text(environment, VARIABLE).or_else(|| environment.get(VARIABLE).map(|_| ""));
    gpus(inventory, visible, text(environment, ORDER))
}

/// The MIG instance that a program with this environment sees, by UUID, if it is the first of its list: a program sees one
/// instance at most.
#[must_use]
pub fn instance(environment: &Environment) -> Option<&str> {
    let first = text(environment, VARIABLE)?.split(',').next()?.trim();
    first.starts_with("MIG-").then_some(first)
}

/// The same by the numbers that the program has for them; `None` also if only the order cannot be known.
#[must_use]
pub fn numbered<'a>(inventory: &'a Inventory, environment: &Environment) -> Option<Vec<&'a Gpu>> {
    let is_listed = environment.get(VARIABLE).is_some();
    let all: Vec<&Gpu> = inventory.usable().collect();
    (is_listed || is_ordered(&all, text(environment, ORDER))).then(|| seen(inventory, environment)).flatten()
}

/// Returns true if the driver's order of the GPUs is NVML's.
fn is_ordered(all: &[&Gpu], order: Option<&str>) -> bool {
    order == Some("PCI_BUS_ID") || all.windows(2).all(|pair| pair[0].name == pair[1].name)
}

/// The GPUs that a program sees with this `CUDA_VISIBLE_DEVICES`, in its order; `None` if that cannot
/// be known from outside: numbers count the GPUs in the driver's order, which is NVML's only if
/// `CUDA_DEVICE_ORDER` is `PCI_BUS_ID` or all GPUs are of one model.
#[must_use]
pub fn gpus<'a>(
    inventory: &'a Inventory,
    visible: Option<&str>,
    order: Option<&str>,
) -> Option<Vec<&'a Gpu>> {
    let all: Vec<&Gpu> = inventory.usable().collect();
    let Some(visible) = visible else { return Some(all) };
    let ordered = is_ordered(&all, order);
    let mut seen: Vec<&Gpu> = Vec::new();
    for part in visible.split(',').map(str::trim) {
        let found = match part.parse::<usize>() {
            Ok(_) if !ordered => return None,
            Ok(index) => all.get(index).copied(),
            Err(_) => {
                let mut fitting = all.iter().filter(|gpu| part.len() > 4 && gpu.uuid.starts_with(part));
                fitting.next().filter(|_| fitting.next().is_none()).copied()
            }
        };
        // What follows an entry that names no GPU is not seen, and a repetition hides everything.
        let Some(gpu) = found else { break };
        if seen.contains(&gpu) {
            return Some(Vec::new());
        }
        seen.push(gpu);
    }
    Some(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(models: &[&str]) -> Inventory {
        let gpu = |(index, model): (usize, &&str)| Gpu {
            index: u32::try_from(index).ok(),
            uuid: format!("GPU-{index}{index}{index}"),
            name: (*model).to_owned(),
            ..Gpu::default()
        };
        Inventory { gpus: models.iter().enumerate().map(gpu).collect(), driver: String::new() }
    }

    #[test]
    fn what_a_program_sees_is_told_as_the_driver_reads_it() {
        let alike = machine(&["A", "A", "A"]);
        let seen = |machine: &Inventory, text: Option<&str>, order| {
            gpus(machine, text, order).map(|gpus| gpus.iter().filter_map(|gpu| gpu.index).collect::<Vec<_>>())
        };
        for (text, expected) in [
            (None, vec![0, 1, 2]),
            (Some(""), vec![]),
            (Some("2,0"), vec![2, 0]),
            (Some("1,-1,0"), vec![1]),
            (Some("0,7,1"), vec![0]),
            (Some("GPU-22, GPU-1"), vec![2, 1]),
            (Some("GPU-"), vec![]),
            (Some("1,1"), vec![]),
        ] {
            assert_eq!(seen(&alike, text, None), Some(expected), "{text:?}");
        }
        let mixed = machine(&["A", "B"]);
        assert_eq!(seen(&mixed, Some("1"), None), None, "the driver may count the faster one first");
        assert_eq!(seen(&mixed, Some("1"), Some("PCI_BUS_ID")), Some(vec![1]));
        assert_eq!(seen(&mixed, Some("GPU-1"), None), Some(vec![1]));
        assert_eq!(seen(&mixed, None, None), Some(vec![0, 1]));
    }
}
