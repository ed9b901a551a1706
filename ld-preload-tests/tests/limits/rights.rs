//! The files of limits are those of `docs/security.md`, with owners and modes as there.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use radrm_os::Process;
use radrm_preload_tests::rights::Rights;

use super::commands::finish;
use super::hostile::Shared;
use super::users::{ALICE, BOB, GROUP};

#[test]
fn files_of_limits_have_the_rights_that_the_page_states() {
    let config = format!("[group.{GROUP}]\nmem-limit = \"1GiB\"\n[user.{ALICE}]\nmem-limit = \"800MiB\"\n");
    let Some(shared) = Shared::with(&config) else { return };
    let (mut jobs, mut runtime) = (Vec::new(), None);
    for user in [ALICE, BOB] {
        let (job, pid) = shared.start_known(user, &["use:0", "alloc:a:100m", "pause"]);
        let segment = Process(pid).variable("RADRM_SEGMENT").expect("its segment");
        runtime = runtime.or_else(|| Path::new(&segment).parent().map(Path::to_owned));
        jobs.push(job);
    }
    let runtime = runtime.expect("alice's directory");
    let own = fs::metadata("/proc/self").expect("this process").uid();
    let scopes = shared.scopes();
    let [group, user] = &scopes[..] else { panic!("{scopes:?}") };
    let check = |names: &[(&str, &Path)], members: &[u32], expected: &[&str]| {
        let owners = members.iter().map(|uid| ("user", *uid)).chain([("root", own)]);
        Rights::of("Limits").assert(names, &owners.collect::<Vec<_>>(), expected);
    };
    check(&[("RUNTIME", &runtime)], &[ALICE], &["RUNTIME", "RUNTIME/segment-*"]);
    check(
        &[("SCOPES/user-A", user)],
        &[ALICE],
        &["SCOPES/user-*", "SCOPES/user-*/member-*", "SCOPES/*/limits"],
    );
    check(&[("SCOPES/group-G", group)], &[ALICE, BOB], &["SCOPES/group-*", "SCOPES/group-*/member-*"]);
    jobs.into_iter().for_each(finish);
}
