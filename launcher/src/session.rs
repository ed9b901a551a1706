//! One run of `radrm-run` from beginning to end.

use std::env;

use radrm_limits::program::target;
use radrm_text::output;

use crate::NAME;
use crate::child::NotStarted;
use crate::cli::Plan;
use crate::dry_run::files::Files;
use crate::dry_run::setup::SetupError;
use crate::dry_run::{batch, fits};
use crate::ending::Ending;
use crate::error::LaunchError;
use crate::inherited::Inherited;
use crate::prepare::Prepared;

/// End that `radrm-run` has to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// As the program did.
    Like(Ending),
    /// With a code of its own, since the program did not run.
    Code(i32),
}

/// Runs the program and records it.
#[must_use]
pub fn run(plan: &Plan, inherited: &Inherited) -> End {
    if let Some(find) = plan.dry_run.as_ref().and_then(|dry_run| dry_run.find_batch.as_ref()) {
        return ended(can_protect(plan).and_then(|()| batch::run(plan, find)).map(End::Code));
    }
    if let Some(wanted) = plan.dry_run.as_ref().filter(|dry_run| !dry_run.fits.is_empty()) {
        return ended(can_protect(plan).and_then(|()| fits::run(plan, wanted)).map(End::Code));
    }
    ended(launch(plan, inherited).map(End::Like))
}

/// Checks once what each of several dry runs needs.
fn can_protect(plan: &Plan) -> Result<(), LaunchError> {
    let word = &plan.command[0];
    if target::find(word, env::var_os("PATH").as_deref()).is_none_or(|program| !program.exists()) {
        return Err(LaunchError::not_started(NotStarted::NotFound, word));
    }
    let writes = plan.dry_run.as_ref().map(|dry_run| &dry_run.writes).filter(|writes| !writes.all_real);
    if let Some(writes) = writes {
        drop(Files::protect(writes, &[]).map_err(SetupError::from)?);
    }
    Ok(())
}

fn ended(result: Result<End, LaunchError>) -> End {
    match result {
        Ok(end) => end,
        Err(LaunchError::Interrupted(signal)) => End::Like(Ending::Killed { signal, core: false }),
        Err(error) => {
            output::say(NAME, &error.to_string());
            End::Code(error.exit_code())
        }
    }
}

fn launch(plan: &Plan, inherited: &Inherited) -> Result<Ending, LaunchError> {
    let armed = Prepared::new(plan)?.arm()?;
    if plan.attend {
        return Ok(armed.attend());
    }
    Ok(armed.spawn(inherited)?.wait().record())
}
