//! `radrm machines`.

use radrm_emulator_machine::Models;
use radrm_text::{Table, left, right};

use crate::{Failure, print, print_json};

/// Prints the models of GPUs that can be emulated.
pub(crate) fn list(json: bool) -> Result<(), Failure> {
    let models = Models::known()?;
    if json {
        return print_json(&models.gpu);
    }
    let columns = [left("MODEL"), right("MEMORY"), right("SMS"), left("CAPABILITY"), left("NAME")];
    let mut table = Table::new(columns);
    for model in &models.gpu {
        table.row([
            model.id.clone(),
            format!("{:.1} GiB", model.memory_mib as f64 / 1024.0),
            model.sms.to_string(),
            model.compute_capability.to_string(),
            model.name.clone(),
        ]);
    }
    print(&table.to_string())
}
