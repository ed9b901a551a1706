//! Memory as a resource: `job_submit.lua` in the controller, and `radrm sbatch` without an administrator.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use radrm_preload_tests::{
    artifacts,
    child::{self, Ended},
    programs,
    rig::PATIENCE,
    slurm::Slurm,
};

/// The script that the packages install.
fn packaged() -> String {
    let path = artifacts::workspace().join("contrib/slurm/job_submit.lua");
    fs::read_to_string(path).expect("job_submit.lua")
}

fn sbatch(slurm: &Slurm, options: &[&str]) -> Ended {
    let mut command = slurm.command("sbatch");
    command.args(["--parsable", "--hold"]).args(options).arg("--wrap=true");
    child::run(command, PATIENCE)
}

fn job(ended: Ended) -> u32 {
    let text = ended.ok().stdout;
    text.trim().parse().unwrap_or_else(|_| panic!("no job: {text}"))
}

#[test]
fn the_controller_turns_the_option_into_shards() {
    let Some(slurm) = Slurm::start_with_script(2, 40_960, &packaged()) else { return };
    for (options, expected) in [
        (&["--gpu-mem=10GiB"][..], "gres:shard:10240"),
        (&["--gpu-mem=1.5GiB"], "gres:shard:1536"),
        (&["--gpu-mem=50%"], "gres:shard:20480"),
        // Jobs that name GPUs or shards, name GPUs in the limit, or have no option, are not changed.
        (&["--gpu-mem=10GiB", "--gres=gpu:2"], "gres:gpu:2"),
        (&["--gpu-mem=10GiB", "--gres=shard:7"], "gres:shard:7"),
        (&["--gres=gpu:1"], "gres:gpu:1"),
    ] {
        let job = job(sbatch(&slurm, options));
        assert_eq!(slurm.resources(job), expected, "{options:?}");
    }
    for options in [&[][..], &["--gpu-mem=0=10GiB"], &["--radrm=profile"]] {
        let job = job(sbatch(&slurm, options));
        let text = slurm.said("scontrol", &["show", "job", &job.to_string()]);
        assert!(!text.contains("TresPerNode"), "{options:?}: {text}");
    }
    let rejected = sbatch(&slurm, &["--gpu-mem=41GiB"]);
    let sentence = "no GPU of this cluster has 41.0 GiB of memory: the largest has 40.0 GiB";
    assert!(!rejected.status.success() && rejected.stderr.contains(sentence), "{rejected:?}");
    let mut command = slurm.command("srun");
    command.args(["--gpu-mem=41GiB", "true"]);
    let rejected = child::run(command, PATIENCE);
    assert!(!rejected.status.success() && rejected.stderr.contains(sentence), "{rejected:?}");
}

#[test]
fn jobs_with_the_option_are_packed_and_held_to_it() {
    let Some(slurm) = Slurm::start_with_script(1, 1024, &packaged()) else { return };
    let asker = programs::compile("quota_ask.c", &[]);
    let script = format!(
        "{0} <<< 314572800; {0} <<< 314572801; touch there.$SLURM_JOB_ID; sleep 1000",
        asker.display()
    );
    let jobs: Vec<u32> = (0..4).map(|_| slurm.sbatch(&["--gpu-mem=300MiB"], &script)).collect();
    let runs = |job: &u32| slurm.path(&format!("work/there.{job}")).exists();
    slurm.until("three of them run", || jobs.iter().filter(|job| runs(job)).count() == 3);
    let waiting = jobs.iter().find(|job| !runs(job)).expect("a fourth job");
    assert_eq!(slurm.field(*waiting, "JobState"), "PENDING", "300 MiB are not left on the GPU");
    for job in jobs.iter().filter(|job| *job != waiting) {
        let output = slurm.output(*job);
        let answers: Vec<&str> = output.lines().filter(|line| !line.starts_with("ready")).collect();
        assert_eq!(answers, ["granted", "refused"], "{output}");
    }
}

#[test]
fn a_sites_own_script_can_use_the_packaged_one() {
    let path = artifacts::workspace().join("contrib/slurm/job_submit.lua");
    let own = format!(
        "dofile({:?})\nradrm.shard = 1024 ^ 3\nradrm.largest = 40\n\
         radrm.estimate = function(job) return job.name == \"known\" and 3 * 1024 ^ 3 or nil end\n\
         function slurm_job_submit(job, partitions, uid)\n\
         job.comment = \"seen\"\nreturn radrm.submit(job)\nend\n",
        path.display().to_string()
    );
    let Some(slurm) = Slurm::start_with_script(1, 40_960, &own) else { return };
    let units = job(sbatch(&slurm, &["--gpu-mem=10GiB"]));
    assert_eq!(slurm.resources(units), "gres:shard:10");
    assert_eq!(slurm.field(units, "Comment"), "seen");
    let estimated = job(sbatch(&slurm, &["-J", "known"]));
    assert_eq!(slurm.resources(estimated), "gres:shard:3");
    let other = job(sbatch(&slurm, &[]));
    let text = slurm.said("scontrol", &["show", "job", &other.to_string()]);
    assert!(!text.contains("TresPerNode"), "{text}");
}

#[test]
fn a_failing_estimate_rejects_the_job_with_a_code_of_its_own() {
    let path = artifacts::workspace().join("contrib/slurm/job_submit.lua");
    let own = format!(
        "dofile({:?})\nradrm.estimate = function(job)\n\
         if job.name == \"wrong\" then return \"much\" end\n\
         if job.name == \"fails\" then error(\"100 % broken\") end\nend\n",
        path.display().to_string()
    );
    let Some(slurm) = Slurm::start_with_script(1, 40_960, &own) else { return };
    for name in ["wrong", "fails"] {
        let rejected = sbatch(&slurm, &["-J", name]);
        let sentence = "the memory that the job needs cannot be estimated: state it by --gpu-mem";
        assert!(!rejected.status.success() && rejected.stderr.contains(sentence), "{rejected:?}");
        assert!(rejected.stderr.contains("Invalid generic resource"), "{rejected:?}");
        let stated = job(sbatch(&slurm, &["-J", name, "--gpu-mem=1GiB"]));
        assert_eq!(slurm.resources(stated), "gres:shard:1024");
    }
    job(sbatch(&slurm, &["-J", "other"]));
}

#[test]
fn a_table_is_a_worked_estimate() {
    let place = tempfile::tempdir().expect("directory");
    let table = place.path().join("needs");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("set");
    fs::write(&table, "# user name memory\nada train 1GiB\n* train 3GiB # all others\n\n* large 20GiB\n")
        .expect("written");
    let path = artifacts::workspace().join("contrib/slurm/job_submit.lua");
    let own = format!(
        "dofile({:?})\nradrm.estimate = radrm.table({:?})\n",
        path.display().to_string(),
        table.display().to_string()
    );
    let Some(slurm) = Slurm::start_with_script(1, 40_960, &own) else { return };
    for (name, shards) in [("train", "gres:shard:3072"), ("large", "gres:shard:20480")] {
        assert_eq!(slurm.resources(job(sbatch(&slurm, &["-J", name]))), shards);
    }
    job(sbatch(&slurm, &["-J", "other"]));
    fs::write(&table, "* large\n").expect("written");
    let rejected = sbatch(&slurm, &["-J", "large"]);
    assert!(!rejected.status.success() && rejected.stderr.contains("cannot be estimated"), "{rejected:?}");
}

#[test]
fn a_script_gets_what_its_earlier_run_took() {
    let Some(slurm) = Slurm::start(1, 4096) else { return };
    slurm.script("train.sh", &format!("{} $1", programs::compile("needs.c", &[]).display()));
    let submit = |words: &[&str]| {
        let ended =
            child::run(slurm.radrm(&[&["sbatch", "--parsable", "-o", "out.%j"], words].concat()), PATIENCE)
                .ok();
        (ended.stdout.trim().parse::<u32>().expect("a job"), ended.stderr)
    };
    let (first, said) = submit(&["train.sh", "1000"]);
    assert!(said.contains("what the job needs is not known: it gets a GPU of its own"), "{said}");
    assert_eq!(slurm.resources(first), "gres:gpu:1");
    slurm.until_ended(first);
    slurm.until("the run is recorded", || slurm.recorders(first) == 0);
    // 1000 MiB, and 2 % because no two runs are alike.
    let (second, said) = submit(&["train.sh", "1000"]);
    assert!(said.contains("measured in an equal run") && said.contains("1020 shards"), "{said}");
    assert_eq!(slurm.resources(second), "gres:shard:1020");
    slurm.until_ended(second);
    assert_eq!(slurm.field(second, "JobState"), "COMPLETED");
    let (other, said) = submit(&["train.sh", "1004"]);
    assert!(said.contains("is not known"), "other arguments are another program: {said}");
    let _ = slurm.said("scancel", &[&other.to_string()]);
    let (told, said) = submit(&["--hold", "--gpu-mem", "2GiB", "-J", "a-name", "train.sh", "1000"]);
    assert!(said.contains("requested 2.00 GiB") && said.contains("2048 shards"), "{said}");
    assert_eq!(slurm.resources(told), "gres:shard:2048");
    assert_eq!(slurm.field(told, "JobName"), "a-name", "options of sbatch reach it as they are");
    let (wrapped, _) = submit(&["--hold", "--gpu-mem-estimate=1GiB", "--wrap=true"]);
    assert_eq!(slurm.resources(wrapped), "gres:shard:1024");
    let refused = child::run(slurm.radrm(&["sbatch", "--gpu-mem=5GiB", "train.sh"]), PATIENCE);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let sentence = "no GPU of this cluster can hold the job";
    assert!(refused.stderr.contains(sentence) && refused.stderr.lines().count() == 1, "{refused:?}");
}

#[test]
fn sbatch_gets_all_options_and_its_exit_code_is_kept() {
    let place = tempfile::tempdir().expect("directory");
    let program = |name: &str, text: &str| {
        let path = place.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("stand-in");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
    };
    program("sinfo", "echo 'gpu:2(S:0),shard:160K(S:0)'");
    program("sbatch", "[ \"$1\" = --help ] && { echo --gpu-attempts; exit; }\nprintf '%s|' \"$@\"; exit 7");
    fs::write(place.path().join("t.sh"), "#!/bin/sh\n#SBATCH --gres=tmp:1\ntrue\n").expect("script");
    let run = |words: &[&str], path: &std::path::Path| {
        let mut command = Command::new(artifacts::file("radrm"));
        command.arg("sbatch").args(words).current_dir(place.path());
        command.env("PATH", path).env("XDG_DATA_HOME", place.path());
        child::run(command, PATIENCE)
    };
    let path = format!("{}:/usr/bin:/bin", place.path().display());
    let ended = run(
        &["-p", "main", "--gpu-mem=1GiB", "--attempts", "2", "--exclusive", "t.sh", "-p", "x y"],
        path.as_ref(),
    );
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    let line = "-p|main|--exclusive|--gres=tmp:1,shard:1024|--gpu-attempts=2|t.sh|-p|x y|";
    assert_eq!(ended.stdout, line, "{ended:?}");
    assert!(ended.stderr.contains("1024 shards (1.00 GiB of one GPU), at most 2 attempts"), "{ended:?}");
    for (words, code, part) in [
        (&["--gpu-mem=1G", "t.sh"][..], 2, "can mean two things"),
        (&["--gpu-mem=1GiB", "nowhere.sh"], 1, "nowhere.sh: "),
        (&["--gpu-mem=81GiB", "t.sh"], 1, "no GPU of this cluster can hold the job"),
    ] {
        let ended = run(words, path.as_ref());
        assert_eq!(ended.status.code(), Some(code), "{words:?} {ended:?}");
        assert!(ended.stderr.contains(part) && ended.stderr.lines().count() == 1, "{words:?} {ended:?}");
    }
    program("sinfo", "echo 'sinfo: error: no controller' >&2; exit 1");
    let ended = run(&["--gpu-mem=1GiB", "t.sh"], path.as_ref());
    assert!(ended.status.code() == Some(1) && ended.stderr.contains("no controller"), "{ended:?}");
}
