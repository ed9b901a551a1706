//! Names of policies: how a device is chosen among those that would do. Their rules have a file each.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! policies {
    ($($(#[$meta:meta])* $variant:ident, $name:literal;)*) => {
        /// Policy by which a device is chosen among those that would do.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Policy {
            $($(#[$meta])* #[serde(rename = $name)] $variant,)*
        }

        impl Policy {
            /// All, in the order of the documentation.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Its name in files and on command lines.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

policies! {
    /// Idle devices only.
    Exclusive, "exclusive";
    /// One device after the other.
    RoundRobin, "round-robin";
    /// Most available GPU memory.
    Magm, "magm";
    /// Least utilised GPU: lowest SM activity.
    Lug, "lug";
    /// Most utilised GPU: fills one before the next.
    Mug, "mug";
    /// The lowest number.
    FirstFit, "first-fit";
    /// The least memory left over.
    BestFit, "best-fit";
    /// The most memory left over. With exact needs the same as `magm`.
    WorstFit, "worst-fit";
    /// Predicted use adds up to a whole device (TPDS '22).
    Horus, "horus";
    /// The least slowdown by a linear model (HotCloud '19).
    Xu, "xu";
    /// Indolent packing by pairs of jobs, the shortest first (ASPLOS '23).
    Lucid, "lucid";
    /// Interleaving of stages by pairs of jobs, the shortest first (SIGCOMM '22).
    Muri, "muri";
    /// Two queues by the GPU time that jobs got, devices taken back for the first (NSDI '19).
    Tiresias, "tiresias";
    /// Slices of a device that are made anew for each company of jobs (SoCC '22).
    Miso, "miso";
    /// Pairs of jobs with the highest summed throughput, by a regression that learns from pairs (SoCC '24).
    Kace, "kace";
    /// Memory fit and predicted slowdown together: the place where the devices get most done in
    /// sum, if sharing pays at all, with the tightest memory fit among equals.
    #[default]
    Aware, "aware";
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A policy's name that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {name}; there are {all}", all = Policy::ALL.map(Policy::name).join(", "))]
pub struct NoSuchPolicy {
    name: String,
}

/// Further names by which papers call policies, without capitals and marks. An oracle is a policy with measured needs.
const ALIASES: [(&str, Policy); 10] = [
    ("rr", Policy::RoundRobin),
    ("mostavailablegpumemory", Policy::Magm),
    ("leastutilizedgpu", Policy::Lug),
    ("leastutilisedgpu", Policy::Lug),
    ("mostutilizedgpu", Policy::Mug),
    ("mostutilisedgpu", Policy::Mug),
    ("off", Policy::FirstFit),
    ("obf", Policy::BestFit),
    ("owf", Policy::WorstFit),
    ("xuetal", Policy::Xu),
];

/// A name without capitals, blanks, hyphens, underscores and dots: `Round Robin` is `round-robin`.
fn plain(name: &str) -> String {
    let kept = name.chars().filter(|letter| !matches!(letter, ' ' | '-' | '_' | '.'));
    kept.map(|letter| letter.to_ascii_lowercase()).collect()
}

impl FromStr for Policy {
    type Err = NoSuchPolicy;
    fn from_str(name: &str) -> Result<Self, NoSuchPolicy> {
        let plain = plain(name);
        let alias = ALIASES.iter().find(|(alias, _)| *alias == plain);
        Self::ALL
            .into_iter()
            .find(|policy| self::plain(policy.name()) == plain)
            .or(alias.map(|(_, policy)| *policy))
            .ok_or_else(|| NoSuchPolicy { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.name());
        }
        for (name, policy) in [
            ("rr", Policy::RoundRobin),
            ("Round Robin", Policy::RoundRobin),
            ("MAGM", Policy::Magm),
            ("Most Available GPU Memory", Policy::Magm),
            ("LUG", Policy::Lug),
            ("First_Fit", Policy::FirstFit),
            ("OWF", Policy::WorstFit),
            ("KACE", Policy::Kace),
            ("Xu et al.", Policy::Xu),
        ] {
            assert_eq!(name.parse(), Ok(policy), "{name}");
        }
        assert!("".parse::<Policy>().is_err() && "-".parse::<Policy>().is_err());
        let wrong = "fastest".parse::<Policy>().unwrap_err().to_string();
        assert!(
            wrong.starts_with("there is no policy fastest; there are exclusive, round-robin, "),
            "{wrong}"
        );
        assert!(wrong.ends_with(", aware"), "{wrong}");
    }

    #[test]
    fn every_policy_has_a_row_in_the_reference() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/replay.md");
        let text = std::fs::read_to_string(page).unwrap();
        let (_, table) = text.split_once("| policy |").expect("a table of policies");
        let rows = table.lines().take_while(|line| line.starts_with('|') || line.ends_with('|'));
        let names: Vec<&str> = rows.filter_map(|row| row.split('|').nth(1)).collect();
        for policy in Policy::ALL {
            let name = format!("`{policy}`");
            assert!(names.iter().any(|cell| cell.contains(&name)), "docs/replay.md has no row of {policy}");
        }
    }
}
