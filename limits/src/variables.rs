//! Limits in variables that other tools set for a container: HAMi's, and those of NVIDIA's container toolkit.
//!
//! | variable | states |
//! |---|---|
//! | `CUDA_DEVICE_MEMORY_LIMIT` | HAMi: memory of each GPU, `3g`, `3000m`, `1048576k` or bytes; 0 is no limit |
//! | `CUDA_DEVICE_MEMORY_LIMIT_<i>` | HAMi: the same for the GPU that CUDA numbers so in the program |
//! | `CUDA_DEVICE_SM_LIMIT`, `CUDA_DEVICE_SM_LIMIT_<i>` | HAMi: percent of a GPU; 0 and 100 are no limit |
//! | `NVIDIA_GPU_MEMORY_LIMIT` | the toolkit: memory of each GPU, MiB |
//! | `NVIDIA_GPU_MEMORY_REQUEST` | the toolkit: memory that is guaranteed, MiB; the limit where none is stated |
//!
//! A user sets them as well as an administrator does, so they only tighten what holds without them, and only where a
//! configuration permits it.

use radrm_telemetry::ledger::{Amount, Limit};

use super::amount::{self, hami_bytes, toolkit_bytes};
use super::config::Percentage;
use super::files;
use super::mps::visible;
use super::mps::warnings::{SHARE_VARIABLE, text};
use super::resolve::{Gpus, beyond, stricter};
use super::scopes::Scopes;
use crate::LimitError;
use crate::program::environment::Environment;

const HAMI_MEMORY: &str = "CUDA_DEVICE_MEMORY_LIMIT";
const HAMI_SHARE: &str = "CUDA_DEVICE_SM_LIMIT";
const TOOLKIT_LIMIT: &str = "NVIDIA_GPU_MEMORY_LIMIT";
const TOOLKIT_REQUEST: &str = "NVIDIA_GPU_MEMORY_REQUEST";

/// Limits that the command line states. They hold in place of those of the variables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stated {
    /// `--mem-limit`.
    pub memory: bool,
    /// `--sm-limit`, or a share in `--mps`.
    pub share: bool,
}

/// Outcome of the variables of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FromVariables {
    /// The share of the GPUs.
    pub share: Option<Percentage>,
    /// A sentence about limits that were taken.
    pub taken: Option<String>,
    /// Sentences about limits that were not.
    pub ignored: Vec<String>,
}

/// A variable that states a limit.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Variable {
    name: String,
    /// Number in the name.
    gpu: Option<usize>,
    text: String,
}

impl Variable {
    fn shown(&self) -> String {
        format!("{}={}", self.name, self.text)
    }
}

/// Tightens the job's limits by those of the variables in its environment.
///
/// # Errors
/// A value is malformed, or its GPU is not known; only for limits that would hold.
pub fn tighten(
    environment: &Environment,
    stated: Stated,
    scopes: &mut Scopes,
    gpus: &Gpus<'_>,
) -> Result<FromVariables, LimitError> {
    let hami = set(environment, HAMI_MEMORY, true);
    let toolkit = [TOOLKIT_LIMIT, TOOLKIT_REQUEST].map(|name| set(environment, name, false)).concat();
    let memory = [hami.as_slice(), &toolkit].concat();
    let shares = set(environment, HAMI_SHARE, true);
    let mut found = FromVariables::default();
    if scopes.limits_from_environment != Some(true) {
        found.ignored.extend(not_permitted(&memory, &shares, stated, scopes.limits_from_environment));
        return Ok(found);
    }
    let mut taken: Vec<&Variable> = Vec::new();
    let mut stricter_limit = None;
    if stated.memory {
        found.ignored.extend(replaced("--mem-limit", &memory));
    } else {
        let (of_hami, unseen) = hami_limits(&hami, environment, gpus)?;
        let requested = stricter(&of_hami, &toolkit_limits(&toolkit)?, gpus)?;
        found.ignored.extend(unseen);
        if !requested.is_empty() {
            let before = scopes.job.take().unwrap_or_default();
            stricter_limit = beyond(&requested, &before, gpus)?;
            scopes.job = Some(stricter(&before, &requested, gpus)?);
            taken.extend(&memory);
        }
    }
    if stated.share {
        found.ignored.extend(replaced("the share of the command line", &shares));
    } else if let Some(share) = smallest_share(&shares)? {
        // The program's own setting of MPS, which this replaces, may be an administrator's.
        let of_mps = text(environment, SHARE_VARIABLE).and_then(|text| Percentage::parse(text).ok());
        found.share = [Some(share), of_mps].into_iter().flatten().min();
        taken.extend(&shares);
    }
    if !taken.is_empty() {
        let also = stricter_limit.map(|amount| {
            format!("; the configured limit of {} for a job is stricter and holds", amount::shown(amount))
        });
        let also = also.unwrap_or_default();
        found.taken = Some(format!("limits are taken from the environment: {}{also}", listed(taken)));
    }
    Ok(found)
}

/// A sentence about the limits in the environment of a job inside another one, whose limits hold. `None`: it has none.
#[must_use]
pub fn inside_another_job(environment: &Environment) -> Option<String> {
    let all = [(HAMI_MEMORY, true), (HAMI_SHARE, true), (TOOLKIT_LIMIT, false), (TOOLKIT_REQUEST, false)];
    let all: Vec<Variable> =
        all.iter().flat_map(|(name, numbered)| set(environment, name, *numbered)).collect();
    (!all.is_empty()).then(|| format!("{} is not taken: the limits of the job around it hold", listed(&all)))
}

/// The variables of this name, and with `numbered` those of `NAME_<i>`. An empty one is not set.
fn set(environment: &Environment, name: &str, numbered: bool) -> Vec<Variable> {
    let mut found: Vec<Variable> = Vec::new();
    for entry in environment.entries() {
        let entry = entry.to_string_lossy();
        let Some((full, text)) = entry.split_once('=').filter(|(_, text)| !text.is_empty()) else { continue };
        let gpu = match full.strip_prefix(name) {
            Some("") => None,
            Some(rest) if numbered => match rest.strip_prefix('_').and_then(|digits| digits.parse().ok()) {
                Some(number) => Some(number),
                None => continue,
            },
            _ => continue,
        };
        if !found.iter().any(|known| known.gpu == gpu) {
            found.push(Variable { name: full.to_owned(), gpu, text: text.to_owned() });
        }
    }
    found.sort_by_key(|variable| variable.gpu);
    found
}

/// HAMi's limits, and a sentence about those of GPUs that the program does not see.
fn hami_limits(
    variables: &[Variable],
    environment: &Environment,
    gpus: &Gpus<'_>,
) -> Result<(Vec<Limit>, Option<String>), LimitError> {
    let mut limits = Vec::new();
    let mut numbered = Vec::new();
    for variable in variables {
        let bytes = hami_bytes(&variable.text).map_err(|error| error.at(&variable.name))?;
        let Some(amount) = bytes.map(Amount::Bytes) else { continue };
        match variable.gpu {
            None => limits.push(Limit { gpu: None, amount }),
            Some(number) => numbered.push((variable, number, amount)),
        }
    }
    let Some((first, ..)) = numbered.first() else { return Ok((limits, None)) };
    let inventory = gpus().map_err(|error| error.at(&first.name))?;
    let seen = visible::numbered(&inventory, environment)
        .ok_or(LimitError::UnknownOrder)
        .map_err(|error| error.at(&first.name))?;
    let mut unseen = Vec::new();
    for (variable, number, amount) in numbered {
        match seen.get(number) {
            Some(gpu) => limits.push(Limit { gpu: Some(gpu.bytes), amount }),
            None => unseen.push(variable),
        }
    }
    let unseen = (!unseen.is_empty())
        .then(|| format!("{} has no effect: the program sees no GPU of that number", listed(unseen)));
    Ok((limits, unseen))
}

fn toolkit_limits(variables: &[Variable]) -> Result<Vec<Limit>, LimitError> {
    let read = |name: &str| {
        let variable = variables.iter().find(|variable| variable.name == name);
        let bytes = |variable: &Variable| Ok((toolkit_bytes(&variable.text)?, variable.text.clone()));
        variable.map(|variable| bytes(variable).map_err(|error: LimitError| error.at(name))).transpose()
    };
    let (limit, request) = (read(TOOLKIT_LIMIT)?, read(TOOLKIT_REQUEST)?);
    if let (Some((limit, limit_text)), Some((request, request_text))) = (&limit, &request)
        && request > limit
    {
        let error = LimitError::RequestAboveLimit(request_text.clone(), limit_text.clone());
        return Err(error.at(TOOLKIT_REQUEST));
    }
    let bytes = limit.or(request).map(|(bytes, _)| bytes);
    Ok(bytes.map(|bytes| Limit { gpu: None, amount: Amount::Bytes(bytes) }).into_iter().collect())
}

/// A job has one share on all its GPUs, so the smallest holds.
fn smallest_share(variables: &[Variable]) -> Result<Option<Percentage>, LimitError> {
    let mut smallest = None;
    for variable in variables.iter().filter(|variable| variable.text != "0") {
        let share = Percentage::parse(&variable.text).map_err(|error| error.at(&variable.name))?;
        smallest = [smallest, Some(share)].into_iter().flatten().min();
    }
    Ok(smallest.filter(|share| share.0 < 100))
}

/// A sentence about limits that the command line replaces.
fn replaced(option: &str, variables: &[Variable]) -> Option<String> {
    (!variables.is_empty()).then(|| format!("{option} holds in place of {}", listed(variables)))
}

/// A sentence about limits that no configuration permits.
fn not_permitted(
    memory: &[Variable],
    shares: &[Variable],
    stated: Stated,
    permission: Option<bool>,
) -> Option<String> {
    let kinds = [(memory, stated.memory, "--mem-limit"), (shares, stated.share, "--sm-limit")];
    let open: Vec<_> = kinds.into_iter().filter(|(all, stated, _)| !all.is_empty() && !stated).collect();
    let options: Vec<&str> = open.iter().map(|(_, _, option)| *option).collect();
    let permit = match permission {
        None => format!(", or set limits-from-environment = true under [job] in {}", files::SYSTEM),
        Some(_) => String::new(),
    };
    (!open.is_empty()).then(|| {
        format!(
            "{} is ignored, since no configuration permits limits from the environment: give {}{permit}",
            listed(open.iter().flat_map(|(variables, ..)| variables.iter())),
            options.join(" and ")
        )
    })
}

fn listed<'v>(variables: impl IntoIterator<Item = &'v Variable>) -> String {
    variables.into_iter().map(Variable::shown).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use radrm_os::nvml::{Gpu, Inventory};

    use super::*;

    const GIB: u64 = 1 << 30;

    fn environment(entries: &[&str]) -> Environment {
        Environment::from_entries(entries.iter().map(|text| CString::new(*text).unwrap()).collect())
    }

    /// GPUs of these models.
    fn machine(models: &[&str]) -> Inventory {
        let gpu = |(index, model): (usize, &&str)| {
            let uuid = format!("GPU-{index:08x}-0000-0000-0000-000000000000");
            let bytes = radrm_os::nvml::uuid_bytes(&uuid).unwrap();
            let index = u32::try_from(index).ok();
            Gpu { index, uuid, bytes, name: (*model).to_owned(), total: 80 * GIB, ..Gpu::default() }
        };
        Inventory { gpus: models.iter().enumerate().map(gpu).collect(), driver: String::new() }
    }

    fn permitted(job: Option<u64>) -> Scopes {
        let job = job.map(|gib| vec![Limit { gpu: None, amount: Amount::Bytes(gib * GIB) }]);
        Scopes { job, limits_from_environment: Some(true), ..Scopes::default() }
    }

    fn tightened(
        entries: &[&str],
        stated: Stated,
        mut scopes: Scopes,
        models: &[&str],
    ) -> Result<(Scopes, FromVariables), LimitError> {
        let found = tighten(&environment(entries), stated, &mut scopes, &|| Ok(machine(models)))?;
        Ok((scopes, found))
    }

    /// GiB on each of three GPUs.
    fn on_three(entries: &[&str], job: Option<u64>) -> [Option<u64>; 3] {
        let (scopes, _) =
            tightened(entries, Stated::default(), permitted(job), &["A", "A", "A"]).expect("limits");
        let inventory = machine(&["A", "A", "A"]);
        [0, 1, 2].map(|index| {
            let amount = crate::resolve::amount_for(scopes.job.as_deref()?, &inventory.gpus[index].bytes)?;
            Some(amount.bytes(80 * GIB) / GIB)
        })
    }

    #[test]
    fn each_variable_limits_its_gpus() {
        for (entries, expected) in [
            (&["CUDA_DEVICE_MEMORY_LIMIT=3g"][..], [Some(3); 3]),
            (&["CUDA_DEVICE_MEMORY_LIMIT_1=3072m"], [None, Some(3), None]),
            (&["CUDA_DEVICE_MEMORY_LIMIT=5g", "CUDA_DEVICE_MEMORY_LIMIT_1=7g"], [Some(5), Some(7), Some(5)]),
            (&["CUDA_DEVICE_MEMORY_LIMIT=5g", "CUDA_DEVICE_MEMORY_LIMIT_1=0"], [Some(5); 3]),
            (&["CUDA_DEVICE_MEMORY_LIMIT_0=3g", "CUDA_VISIBLE_DEVICES=2,0"], [None, None, Some(3)]),
            (&["CUDA_DEVICE_MEMORY_LIMIT_0=3g", "CUDA_VISIBLE_DEVICES="], [None; 3]),
            (&["NVIDIA_GPU_MEMORY_LIMIT=4096"], [Some(4); 3]),
            (&["NVIDIA_GPU_MEMORY_REQUEST=2048"], [Some(2); 3]),
            (&["NVIDIA_GPU_MEMORY_REQUEST=2048", "NVIDIA_GPU_MEMORY_LIMIT=4096"], [Some(4); 3]),
            (&["NVIDIA_GPU_MEMORY_LIMIT=4096", "CUDA_DEVICE_MEMORY_LIMIT_2=3g"], [Some(4), Some(4), Some(3)]),
            (
                &[
                    "CUDA_DEVICE_MEMORY_LIMIT=",
                    "CUDA_DEVICE_MEMORY_LIMIT_x=3g",
                    "CUDA_DEVICE_MEMORY_LIMITS=3g",
                ],
                [None; 3],
            ),
        ] {
            assert_eq!(on_three(entries, None), expected, "{entries:?}");
        }
    }

    #[test]
    fn variables_tighten_and_never_loosen() {
        for (entry, expected, says) in [
            ("CUDA_DEVICE_MEMORY_LIMIT=3g", 3, false),
            ("CUDA_DEVICE_MEMORY_LIMIT=20g", 10, true),
            ("CUDA_DEVICE_MEMORY_LIMIT=0", 10, false),
            ("NVIDIA_GPU_MEMORY_LIMIT=20480", 10, true),
        ] {
            assert_eq!(on_three(&[entry], Some(10)), [Some(expected); 3], "{entry}");
            let (_, found) = tightened(&[entry], Stated::default(), permitted(Some(10)), &["A"]).unwrap();
            let said = found.taken.unwrap_or_default();
            assert_eq!(said.contains("the configured limit of 10GiB for a job is stricter"), says, "{said}");
        }
        assert_eq!(on_three(&["CUDA_DEVICE_MEMORY_LIMIT_1=3g"], Some(10)), [Some(10), Some(3), Some(10)]);
        assert_eq!(on_three(&["CUDA_DEVICE_MEMORY_LIMIT_1=30g"], Some(10)), [Some(10); 3]);
    }

    #[test]
    fn without_permission_a_variable_is_ignored_aloud() {
        let entries =
            ["CUDA_DEVICE_MEMORY_LIMIT=bad", "CUDA_DEVICE_SM_LIMIT=30", "NVIDIA_GPU_MEMORY_LIMIT=5"];
        let said = |permission, stated| {
            let scopes = Scopes { limits_from_environment: permission, ..Scopes::default() };
            let (scopes, found) = tightened(&entries, stated, scopes, &["A"]).unwrap();
            assert_eq!((scopes.job, found.share, found.taken), (None, None, None));
            found.ignored
        };
        let all = said(None, Stated::default());
        assert_eq!(
            all,
            [
                "CUDA_DEVICE_MEMORY_LIMIT=bad, NVIDIA_GPU_MEMORY_LIMIT=5, CUDA_DEVICE_SM_LIMIT=30 is ignored, since no \
              configuration permits limits from the environment: give --mem-limit and --sm-limit, or set \
              limits-from-environment = true under [job] in /etc/radrm/radrm.toml"
            ]
        );
        let refused = said(Some(false), Stated { memory: true, share: false });
        assert!(refused[0].ends_with("give --sm-limit") && !refused[0].contains("MEMORY"), "{refused:?}");
        assert_eq!(said(None, Stated { memory: true, share: true }), [] as [&str; 0]);
    }

    #[test]
    fn variables_inside_another_job_are_named() {
        let said = |entries: &[&str]| inside_another_job(&environment(entries));
        assert_eq!(said(&["CUDA_DEVICE_MEMORY_LIMIT=", "CUDA_DEVICE_ORDER=PCI_BUS_ID"]), None);
        let all = said(&[
            "NVIDIA_GPU_MEMORY_REQUEST=5",
            "CUDA_DEVICE_SM_LIMIT=30",
            "CUDA_DEVICE_MEMORY_LIMIT_1=1g",
        ]);
        let names = "CUDA_DEVICE_MEMORY_LIMIT_1=1g, CUDA_DEVICE_SM_LIMIT=30, NVIDIA_GPU_MEMORY_REQUEST=5";
        assert_eq!(all, Some(format!("{names} is not taken: the limits of the job around it hold")));
    }

    #[test]
    fn the_command_line_wins_over_variables() {
        let entries = ["CUDA_DEVICE_MEMORY_LIMIT=bad", "CUDA_DEVICE_SM_LIMIT=bad"];
        let stated = Stated { memory: true, share: true };
        let (scopes, found) = tightened(&entries, stated, permitted(Some(10)), &["A"]).unwrap();
        assert_eq!((scopes.job, found.share), (permitted(Some(10)).job, None));
        assert_eq!(found.ignored.len(), 2);
        assert_eq!(found.ignored[0], "--mem-limit holds in place of CUDA_DEVICE_MEMORY_LIMIT=bad");
    }

    #[test]
    fn a_share_is_the_smallest_and_all_of_it_is_none() {
        for (entries, expected) in [
            (&["CUDA_DEVICE_SM_LIMIT=30"][..], Some(30)),
            (&["CUDA_DEVICE_SM_LIMIT=0"], None),
            (&["CUDA_DEVICE_SM_LIMIT=100"], None),
            (&["CUDA_DEVICE_SM_LIMIT=30", "CUDA_DEVICE_SM_LIMIT_1=20", "CUDA_DEVICE_SM_LIMIT_2=0"], Some(20)),
            (&["CUDA_DEVICE_SM_LIMIT=30", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10"], Some(10)),
            (&["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10"], None),
        ] {
            let (_, found) = tightened(entries, Stated::default(), permitted(None), &["A"]).unwrap();
            assert_eq!(found.share.map(|share| share.0), expected, "{entries:?}");
            assert_eq!(found.taken.is_some(), expected.is_some(), "{entries:?}");
        }
    }

    #[test]
    fn a_malformed_limit_that_would_hold_is_an_error() {
        for (entries, part) in [
            (
                &["CUDA_DEVICE_MEMORY_LIMIT=3GiB"][..],
                "CUDA_DEVICE_MEMORY_LIMIT: `3GiB` is not an amount in HAMi's units",
            ),
            (&["CUDA_DEVICE_MEMORY_LIMIT_0=1024"], "CUDA_DEVICE_MEMORY_LIMIT_0: `1024` means 1024 bytes"),
            (&["CUDA_DEVICE_SM_LIMIT=101"], "CUDA_DEVICE_SM_LIMIT: `101` is not a percentage"),
            (&["NVIDIA_GPU_MEMORY_LIMIT=4Gi"], "NVIDIA_GPU_MEMORY_LIMIT: `4Gi` is not a whole number of MiB"),
            (
                &["NVIDIA_GPU_MEMORY_REQUEST=9", "NVIDIA_GPU_MEMORY_LIMIT=8"],
                "NVIDIA_GPU_MEMORY_REQUEST: `9` MiB is more",
            ),
        ] {
            let error =
                tightened(entries, Stated::default(), permitted(None), &["A"]).unwrap_err().to_string();
            assert!(error.starts_with(part) && error.lines().count() == 1, "{error}");
        }
    }

    #[test]
    fn a_number_that_may_mean_another_gpu_is_an_error() {
        let numbered = ["CUDA_DEVICE_MEMORY_LIMIT_0=3g"];
        let error = tightened(&numbered, Stated::default(), permitted(None), &["A", "B"]).unwrap_err();
        assert!(error.to_string().contains("set CUDA_DEVICE_ORDER=PCI_BUS_ID"), "{error}");
        let ordered = ["CUDA_DEVICE_MEMORY_LIMIT_0=3g", "CUDA_DEVICE_ORDER=PCI_BUS_ID"];
        assert!(tightened(&ordered, Stated::default(), permitted(None), &["A", "B"]).is_ok());
        let (_, found) =
            tightened(&["CUDA_DEVICE_MEMORY_LIMIT_7=3g"], Stated::default(), permitted(None), &["A"])
                .unwrap();
        let expected = "CUDA_DEVICE_MEMORY_LIMIT_7=3g has no effect: the program sees no GPU of that number";
        assert_eq!((found.ignored, found.taken), (vec![expected.to_owned()], None));
    }
}
