//! The variables of a task that another program starts, as a workload manager or a container runtime does: what holds
//! where the task's user, or the image of its container, has set one of them too, and how they reach a container.

use super::environment::{Environment, PRELOAD};
use super::sanitizers;
use crate::start::{LIMITS_VARIABLE, NOTICES_VARIABLE};

/// In this variable a runtime of containers finds what the container gets ([`Given::to_text`]).
pub const CONTAINER_VARIABLE: &str = "RADRM_CONTAINER";

/// Variables that decide whether and where a process counts: never a user's.
const OWN: [&str; 6] =
    ["RADRM_SEGMENT", "RADRM_QUOTA", "RADRM_LEDGERS", LIMITS_VARIABLE, NOTICES_VARIABLE, CONTAINER_VARIABLE];
/// It would keep the shim from counting, and a task with a limit from getting any memory.
const SWITCH: &str = "RADRM_DISABLE";
/// Lists, which get the given entry in front.
const LISTS: [&str; 2] = [PRELOAD, "LD_LIBRARY_PATH"];
/// Of another tool, if the user has set it.
const UNLESS_SET: &str = "NVTX_INJECTION64_PATH";

/// First lines of a text.
const LIMITED: &str = "limited";
const RECORDED: &str = "recorded";

/// Variables of the user's that no task keeps.
pub fn withheld(is_limited: bool) -> impl Iterator<Item = &'static str> {
    OWN.into_iter().chain(is_limited.then_some(SWITCH))
}

/// The value that a task gets where `given` is meant for it and its user has set `own`; `None`: the user's stays.
#[must_use]
pub fn value(name: &[u8], given: &[u8], own: Option<&[u8]>) -> Option<Vec<u8>> {
    let is = |other: &str| name == other.as_bytes();
    let own = own.filter(|own| !own.is_empty());
    match own {
        Some(_) if is(UNLESS_SET) => None,
        Some(own) if LISTS.into_iter().any(is) => {
            let others: Vec<_> = own.split(|byte| *byte == b':').filter(|item| *item != given).collect();
            Some(match is(PRELOAD) {
                true => sanitizers::preload(&others.join(&b':'), given),
                false => [&[given], others.as_slice()].concat().join(&b':'),
            })
        }
        _ => Some(given.to_vec()),
    }
}

/// Variables that a container gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// It must not run without these.
    pub is_limited: bool,
    /// `NAME` and value.
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Given {
    /// A line for each variable; `None`: one of them has more than one line.
    #[must_use]
    pub fn to_text(&self) -> Option<Vec<u8>> {
        let mut text = if self.is_limited { LIMITED } else { RECORDED }.as_bytes().to_vec();
        for (name, value) in &self.variables {
            if name.contains(&b'\n') || value.contains(&b'\n') {
                return None;
            }
            text = [text.as_slice(), b"\n", name, b"=", value].concat();
        }
        Some(text)
    }

    /// Reads a text; `None`: it is none.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut lines = text.split(|byte| *byte == b'\n');
        let first = lines.next()?;
        let is_limited = first == LIMITED.as_bytes();
        if !is_limited && first != RECORDED.as_bytes() {
            return None;
        }
        let variable = |line: &[u8]| {
            let equals = line.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
            Some((line.get(..equals)?.to_vec(), line.get(equals + 1..)?.to_vec()))
        };
        Some(Self { is_limited, variables: lines.map(variable).collect::<Option<_>>()? })
    }

    /// Puts the variables into an environment.
    pub fn enter(&self, environment: &mut Environment) {
        withheld(self.is_limited).for_each(|name| environment.remove(name));
        for (name, given) in &self.variables {
            let name = String::from_utf8_lossy(name);
            let own = environment.last(&name).map(<[u8]>::to_vec);
            if let Some(value) = value(name.as_bytes(), given, own.as_deref()) {
                environment.set(&name, &value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn block(entries: &[&str]) -> Environment {
        Environment::from_entries(entries.iter().map(|text| CString::new(*text).unwrap()).collect())
    }

    fn given(is_limited: bool, variables: &[(&str, &str)]) -> Given {
        let bytes = |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        Given { is_limited, variables: variables.iter().map(bytes).collect() }
    }

    #[test]
    fn the_shim_is_in_front_of_a_list_once() {
        let list = |own: &[u8]| value(b"LD_PRELOAD", b"/lib/r.so", Some(own)).unwrap();
        assert_eq!(list(b"/a.so:/lib/r.so:/b.so"), b"/lib/r.so:/a.so:/b.so");
        assert_eq!(list(b"/a.so"), b"/lib/r.so:/a.so");
        assert_eq!(list(b""), b"/lib/r.so");
        assert_eq!(value(b"LD_PRELOAD", b"/lib/r.so", None).unwrap(), b"/lib/r.so");
    }

    #[test]
    fn a_tool_of_the_users_stays_and_nothing_else() {
        assert_eq!(value(b"NVTX_INJECTION64_PATH", b"/r", Some(b"/tool")), None);
        assert_eq!(value(b"NVTX_INJECTION64_PATH", b"/r", Some(b"")).unwrap(), b"/r");
        for name in ["RADRM_SEGMENT", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_VISIBLE_DEVICES"] {
            assert_eq!(value(name.as_bytes(), b"/r", Some(b"/forged")).unwrap(), b"/r");
        }
    }

    #[test]
    fn what_an_image_sets_lifts_no_limit() {
        let image =
            ["A=1", "RADRM_DISABLE=1", "RADRM_LEDGERS=/forged", "LD_PRELOAD=/old", "RADRM_SEGMENT=/a"];
        let job = ["RADRM_SEGMENT=/b", "LD_PRELOAD=/own.so", "RADRM_CONTAINER=limited"];
        let variables = [("RADRM_SEGMENT", "/s"), ("RADRM_QUOTA", "1"), ("LD_PRELOAD", "/r.so")];
        let mut environment = block(&[&image[..], &job[..]].concat());
        given(true, &variables).enter(&mut environment);
        // Of two entries the last one holds in a container.
        let expected = ["A=1", "LD_PRELOAD=/r.so:/own.so", "RADRM_SEGMENT=/s", "RADRM_QUOTA=1"];
        assert_eq!(environment, block(&expected));
        let mut environment = block(&["RADRM_DISABLE=1"]);
        given(false, &[]).enter(&mut environment);
        assert_eq!(environment, block(&["RADRM_DISABLE=1"]), "recording can be switched off");
    }

    #[test]
    fn a_text_gives_the_same_variables_again() {
        let all = given(true, &[("A", "x=y"), ("B", "")]);
        assert_eq!(Given::parse(&all.to_text().unwrap()), Some(all));
        let none = given(false, &[]);
        assert_eq!(Given::parse(&none.to_text().unwrap()), Some(none));
        assert_eq!(given(true, &[("A", "x\nB=y")]).to_text(), None);
        for text in ["", "A=1", "limited\nA", "limited\n=1", "recorded\n\n"] {
            assert_eq!(Given::parse(text.as_bytes()), None, "{text}");
        }
    }
}
