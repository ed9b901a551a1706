//! `radrm machines`.

use std::fmt::Write as _;

use radrm_emulator_machine::Models;

use super::print;
use crate::Failure;

/// Prints the models of GPUs that can be emulated.
///
/// # Errors
/// One sentence.
pub fn list(json: bool) -> Result<(), Failure> {
    let models = Models::known().map_err(|error| error.to_string())?;
    if json {
        let text = serde_json::to_string_pretty(&models.gpu).map_err(|error| error.to_string())?;
        return print(&format!("{text}\n"));
    }
    let mut text = format!("{:<12} {:>9} {:>5}  {:<10} NAME\n", "MODEL", "MEMORY", "SMS", "CAPABILITY");
    for model in &models.gpu {
        let gib = model.memory_mib as f64 / 1024.0;
        let _ = writeln!(
            text,
            "{:<12} {gib:>5.1} GiB {:>5}  {:<10} {}",
            model.id, model.sms, model.compute_capability, model.name
        );
    }
    print(&text)
}
