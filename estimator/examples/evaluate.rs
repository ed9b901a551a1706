//! Prints the tables of `docs/estimators.md` from the published measurements:
//! `cargo run --release -p radrm-estimator --example evaluate [timm|...]`.

#[path = "../tests/published/mod.rs"]
mod published;
#[path = "../tests/published/timm.rs"]
mod timm;

use radrm_estimator::Error;

fn main() -> Result<(), Error> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let asked = |name: &str| wanted.is_empty() || wanted.iter().any(|one| one == name);
    if asked("timm") {
        memory()?;
    }
    Ok(())
}

fn memory() -> Result<(), Error> {
    let Some(programs) = published::timm() else { return Ok(()) };
    let rows: usize = programs.iter().map(Vec::len).sum();
    let mut families: Vec<&str> = programs.iter().map(|runs| runs[0].family.as_str()).collect();
    families.sort_unstable();
    families.dedup();
    println!(
        "TIMM on an A100: {rows} runs of {} models, {} families held out in turn",
        programs.len(),
        families.len()
    );
    for ((set, runs), scores) in timm::scores(&timm::evaluate(&programs, 5)?) {
        println!("  {:14} {runs} own runs  {scores}", timm::SETS[set].0);
    }
    Ok(())
}
