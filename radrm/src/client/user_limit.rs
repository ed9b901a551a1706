//! Warning of a job that asks for more than its user may take.

use radrm_limits::LimitError;
use radrm_limits::files::{self, Read};
use radrm_limits::scopes::{self, Person, user_name};
use radrm_profile::Bytes;
use radrm_protocol::spec::Spec;
use radrm_telemetry::ledger::{Amount, Limit};

/// A remark on a need above what the configuration gives the user, or a group of the user, on every GPU. Limits of single GPUs,
/// and parts of them, depend on where the job will be.
pub(super) fn remark(spec: &Spec) -> Option<String> {
    // A wrong configuration is reported when the job starts, with the file and the line.
    spec.mem.filter(|_| spec.gpus > 0).and_then(|mem| above(mem, &files::all().ok()?, &Person::own()))
}

fn above(mem: u64, files: &[Read], person: &Person) -> Option<String> {
    let unknown = || Err(LimitError::NoLimit);
    let scopes = scopes::gather(None, files, person, &unknown).ok()?;
    let user =
        person.user.clone().or_else(|| user_name(person.uid)).unwrap_or_else(|| person.uid.to_string());
    let all = [(format!("user {user}"), scopes.user.as_slice())]
        .into_iter()
        .chain(scopes.groups.iter().map(|group| (format!("group {}", group.name), group.limits.as_slice())));
    let above = all.filter_map(|(whose, limits)| match limits {
        [Limit { gpu: None, amount: Amount::Bytes(most) }] if *most < mem => Some((*most, whose)),
        _ => None,
    });
    let (most, whose) = above.min()?;
    Some(format!(
        "--gpu-mem {} is more than {whose} may take on a GPU, which is {}: the job gets no more than that",
        Bytes(mem),
        Bytes(most)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_limits::config;
    use std::path::Path;

    #[test]
    fn a_need_above_the_users_limit_is_remarked() {
        let person =
            Person { uid: 1000, user: Some("alice".into()), groups: vec![(200, Some("lab".to_owned()))] };
        let said = |text: &str| {
            let config = config::parse(Path::new("f.toml"), text).unwrap();
            above(10 << 30, &[Read { path: "f.toml".into(), own: false, config }], &person)
        };
        let user = said("[user.alice]\nmem-limit = '3GiB'\n[group.lab]\nmem-limit = '4GiB'\n").unwrap();
        assert!(
            user.contains("10.0 GiB is more than user alice may take") && user.contains("3.00 GiB"),
            "{user}"
        );
        let group = said("[group.lab]\nmem-limit = '4GiB'\n").unwrap();
        assert!(group.contains("group lab") && group.lines().count() == 1, "{group}");
        for text in ["", "[default]\nmem-limit = '10GiB'\n", "[default]\nmem-limit = '0=1GiB'\n"] {
            assert_eq!(said(text), None, "{text}");
        }
    }
}
