use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::expand::MAX_RUNS;
use crate::plan::Collocation;

fn read(text: &str) -> Result<Plan, (Place, Wrong)> {
    super::read(text, "file", Path::new("/sweeps"))
}

fn commands(plan: &Plan) -> Vec<String> {
    plan.groups.iter().flat_map(|group| &group.runs).map(|run| run.command.join(" ")).collect()
}

#[test]
fn a_grid_has_every_combination_in_the_order_of_the_file() {
    let text = r#"
        command = "python3 train.py --lr {lr} --bs={batch} '{{x}}'"
        repetitions = 2
        timeout = "90s"
        mem_limit = "10GiB"
        devices = [1]
        directory = "d"
        [axes]
        lr = [0.1, 1e-5]
        batch = { from = 8, to = 32, step = 2, log = true }
        [environment]
        BATCH = "b{batch}"
    "#;
    let plan = read(text).unwrap();
    let expected =
        ["0.1 --bs=8", "0.1 --bs=16", "0.1 --bs=32", "1e-5 --bs=8", "1e-5 --bs=16", "1e-5 --bs=32"];
    let expected: Vec<_> = expected.map(|part| format!("python3 train.py --lr {part} {{x}}")).to_vec();
    assert_eq!(commands(&plan), [expected.clone(), expected].concat());
    let run = &plan.groups[7].runs[0];
    assert_eq!((run.repetition, run.timeout_ms, run.mem_limit.as_deref()), (2, Some(90_000), Some("10GiB")));
    assert_eq!((run.environment["BATCH"].as_str(), run.devices.as_slice()), ("b16", &["1".to_owned()][..]));
    assert_eq!((run.directory.as_path(), plan.name.as_str()), (Path::new("/sweeps/d"), "file"));
    assert_eq!(
        run.configuration, plan.groups[1].runs[0].configuration,
        "repetitions are of one configuration"
    );
}

#[test]
fn early_stopping_has_a_rule_and_a_logged_metric() {
    use crate::early::{Kind, Rule};
    let text = |rule: &str| format!("command = \"t {{x}}\"\n[axes]\nx = [1, 2]\n[early_stopping]\n{rule}");
    let of = |rule: &str| read(&text(rule)).map(|plan| plan.early);
    let halving = Rule {
        kind: Kind::Halving { reduction: 3 },
        metric: "val/loss".into(),
        is_highest_best: false,
        min_steps: 1,
    };
    assert_eq!(of("rule = \"halving\"\nmetric = \"val/loss:min\"").unwrap(), Some(halving.clone()));
    let median = Rule { kind: Kind::Median, is_highest_best: true, min_steps: 5, ..halving };
    assert_eq!(of("rule = \"median\"\nmetric = \"val/loss:max\"\nmin_steps = 5").unwrap(), Some(median));
    for (rule, part) in [
        ("rule = \"halving\"\nmetric = \"loss\"", "NAME:min or NAME:max"),
        ("rule = \"halving\"\nmetric = \"loss:min\"\nreduction = 1", "at least 2"),
        ("rule = \"median\"\nmetric = \"loss:min\"\nreduction = 3", "for `halving`"),
        ("rule = \"median\"\nmetric = \"loss:min\"\nmin_steps = 0", "at least 1"),
        ("rule = \"half\"\nmetric = \"loss:min\"", "half"),
        ("metric = \"loss:min\"", "rule"),
    ] {
        let why = of(rule).unwrap_err().1.to_string();
        assert!(why.contains(part), "{rule}: {why}");
    }
    let together = text("rule = \"median\"\nmetric = \"loss:min\"").replace("[axes]", "together = 2\n[axes]");
    assert!(matches!(read(&together).unwrap_err().1, Wrong::EarlyTogether));
}

#[test]
fn a_random_search_has_so_many_samples_and_repeats_by_its_seed() {
    let text = |seed: u32| {
        format!(
            "command = [\"t\", \"{{lr}}\"]\nsearch = \"random\"\nsamples = 9\nseed = {seed}\n\
             [axes]\nlr = {{ from = 1e-4, to = 0.1, log = true }}\n"
        )
    };
    let one = commands(&read(&text(1)).unwrap());
    assert_eq!(one.len(), 9);
    assert_eq!(one, commands(&read(&text(1)).unwrap()));
    assert_ne!(one, commands(&read(&text(2)).unwrap()));
}

#[test]
fn members_of_a_group_state_their_values_and_run_alone_once() {
    let text = r#"
        command = "t {net} {batch}"
        solo = true
        [axes]
        net = ["a", "b"]
        [[group]]
        name = "pair"
        collocation = "mps"
        members = [{ batch = 8, copies = 2 }, { batch = 16, mem_limit = "2GiB" }]
    "#;
    let plan = read(text).unwrap();
    let shapes: Vec<_> = plan.groups.iter().map(|group| (group.name.as_str(), group.runs.len())).collect();
    assert_eq!(
        shapes,
        [
            ("alone run=batch=8 net=a", 1),
            ("alone run=batch=16 net=a mem_limit=2GiB", 1),
            ("alone run=batch=8 net=b", 1),
            ("alone run=batch=16 net=b mem_limit=2GiB", 1),
            ("pair net=a", 3),
            ("pair net=b", 3)
        ]
    );
    assert_eq!(plan.groups[4].runs[2].collocation, Collocation::Mps);
    assert_eq!(plan.groups[4].runs[0].configuration, plan.groups[0].runs[0].configuration);
}

#[test]
fn copies_that_start_together_run_alone_too_with_solo() {
    let text = |together: u32| {
        format!(
            "command = \"t {{x}}\"\nsolo = true\ntogether = {together}\nrepetitions = 2\n[axes]\nx = [1, 2]\n"
        )
    };
    let plan = read(&text(3)).unwrap();
    let shapes: Vec<_> = plan.groups.iter().map(|group| (group.name.as_str(), group.runs.len())).collect();
    let once = [("alone run=x=1", 1), ("x=1", 3), ("alone run=x=2", 1), ("x=2", 3)];
    assert_eq!(shapes, [once, once].concat());
    let keys: BTreeSet<String> = plan.groups.iter().flat_map(Group::keys).collect();
    assert_eq!(keys.len(), 16, "each run is another");
    assert_eq!(read(&text(1)).unwrap().groups.len(), 4, "each is alone already");
}

#[test]
fn members_on_different_gpus_are_alone_each_on_its_own() {
    let text = "command = \"t {x}\"\nsolo = true\n[axes]\n[[group]]\nname = \"pair\"\n\
                members = [{ x = 1, devices = [0] }, { x = 1, devices = [1] }]\n";
    let plan = read(text).unwrap();
    let names: Vec<_> = plan.groups.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["alone devices=0 run=x=1", "alone devices=1 run=x=1", "pair"]);
    let recorded = plan.groups.iter().flat_map(|group| {
        group.runs.iter().zip(group.keys()).map(|(run, key)| crate::store::Recorded {
            key,
            group: group.name.clone(),
            configuration: run.configuration.clone(),
            repetition: run.repetition,
            ..crate::store::Recorded::default()
        })
    });
    let all = crate::report::configurations(&recorded.collect::<Vec<_>>());
    let companies: Vec<_> = all.iter().map(|one| (one.company.is_some(), one.left)).collect();
    assert_eq!(companies, [(false, 2), (true, 2)], "the members alone are what the pair is compared with");
}

#[test]
fn too_many_runs_are_refused_before_they_are_made() {
    let many = 100_000;
    for text in [
        format!("command = \"t {{x}}\"\ntogether = {many}\nrepetitions = {many}\n[axes]\nx = [1, 2]\n"),
        format!(
            "command = \"t {{x}} {{y}}\"\nrepetitions = {many}\n[axes]\nx = {{ from = 1, to = 9999, step = 1 }}\n\
             [[group]]\nmembers = [{{ y = 1, copies = {many} }}]\n"
        ),
    ] {
        assert_eq!(read(&text).expect_err("too many").1, Wrong::TooMany(MAX_RUNS));
    }
}

#[test]
fn copies_that_start_together_have_keys_of_their_own() {
    let plan = read("command = \"t {x}\"\ntogether = 3\n[axes]\nx = [1, 2]\n").unwrap();
    assert_eq!(plan.groups.iter().map(|group| group.runs.len()).collect::<Vec<_>>(), [3, 3]);
    let keys: BTreeSet<_> = plan.groups.iter().flat_map(Group::keys).collect();
    assert_eq!(keys.len(), 6);
}

#[test]
fn a_wrong_file_is_reported_with_line_and_column() {
    let with = |line: &str| format!("command = \"t {{x}}\"\n{line}\n[axes]\nx = [1, 2]\n");
    let axes = |line: &str| format!("command = \"t {{x}}\"\n[axes]\n{line}\n");
    for (text, expected) in [
        ("comand = 1".to_owned(), "line 1"),
        ("name = \"a\"".to_owned(), "missing field `command`"),
        ("command = \"\"".to_owned(), "line 1, column 11: the command is empty"),
        ("command = \"t 'x\"".to_owned(), "quotes are not closed"),
        ("command = \"t {x\"".to_owned(), "a brace is not closed"),
        ("command = \"t {x}\"".to_owned(), "line 1, column 11: {x} names no axis"),
        ("command = \"t\"\n[axes]\nx = [1]\n".to_owned(), "line 3, column 5: the axis x changes nothing"),
        (with("repetitions = 0"), "line 2, column 15: at least 1"),
        (with("timeout = \"soon\""), "line 2, column 11: `soon` is no time"),
        (with("mem_limit = \"10G\""), "line 2, column 13: `10G` can mean two things"),
        (with("sm_limit = \"0\""), "line 2, column 12: `0` is not a percentage"),
        (with("devices = [-1]"), "line 2, column 11: `-1` names no GPU"),
        (with("collocation = \"3g\""), "line 2, column 15: `3g` is no collocation"),
        (with("name = \"a/b\""), "line 2, column 8: the name is empty, or has"),
        (with("samples = 2"), "line 2, column 11: `samples` is for a random search"),
        (with("seed = 2"), "line 2, column 8: `seed` is for a random search"),
        (with("search = \"random\""), "needs `samples`"),
        (with("[[group]]\nmembers = []"), "a group has no members"),
        (with("[[group]]\nmembers = [{x = 1}, {copies = 2}]"), "member 2 does not state x"),
        (axes("x = []"), "line 3, column 5: the axis x has no values"),
        (axes("x = [1, 1]"), "the axis x has the value 1 twice"),
        (axes("x = [[1]]"), "a value is a text, a number or true or false"),
        (axes("x = 1"), "a list of values, or { from, to, step, log }"),
        (axes("x = {from = 1, to = 2}"), "a range without `step`"),
        (axes("x = {from = 2, to = 1, step = 1}"), "`from` must be below `to`"),
        (axes("x = {from = 0, to = 1, step = 0}"), "a `step` must be above 0"),
        (axes("x = {from = 0, to = 1, step = 1e-9}"), "at most 10000 values"),
        (axes("timeout = [1]"), "an axis cannot be called timeout"),
    ] {
        let (place, wrong) = read(&text).expect_err(&text);
        let shown = format!("{place}: {wrong}");
        assert!(shown.contains(expected) && shown.lines().count() == 1, "{expected}: {shown}");
    }
}

proptest! {
    #[test]
    fn a_file_gives_as_many_different_runs_as_its_axes_and_repetitions(
        lists in prop::collection::vec(1..5_usize, 0..4), repetitions in 1..4_u32, together in 1..4_u32
    ) {
        let places: String = (0..lists.len()).map(|axis| format!(" {{x{axis}}}")).collect();
        let axes: String = lists
            .iter()
            .enumerate()
            .map(|(axis, length)| format!("x{axis} = {:?}\n", (0..*length).collect::<Vec<_>>()))
            .collect();
        let text = format!("command = \"t{places}\"\nrepetitions = {repetitions}\ntogether = {together}\n[axes]\n{axes}");
        let plan = read(&text).unwrap();
        prop_assert_eq!(&plan, &read(&text).unwrap());
        let product: usize = lists.iter().product();
        prop_assert_eq!(plan.groups.len(), product * repetitions as usize);
        let keys: Vec<_> = plan.groups.iter().flat_map(Group::keys).collect();
        let different: BTreeSet<_> = keys.iter().collect();
        prop_assert_eq!((keys.len(), different.len()), (plan.groups.len() * together as usize, keys.len()));
    }
}
