//! Recording of kernel launches: `--kernels`.

use std::str::FromStr;

use radrm_telemetry::KernelsMode;

use super::environment::Environment;
use crate::LimitError;

/// A mode, and the share of the running time that timing may take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kernels {
    mode: KernelsMode,
    /// Per cent, as written.
    budget: Option<String>,
}

impl FromStr for Kernels {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let (name, budget) = match text.split_once(':') {
            Some((name, budget)) => (name, Some(budget.strip_suffix('%').unwrap_or(budget))),
            None => (text, None),
        };
        let wrong = || LimitError::NoKernelsMode(text.to_owned());
        let mode = KernelsMode::from_name(name.as_bytes()).ok_or_else(wrong)?;
        if let Some(budget) = budget {
            let is_share = budget.parse::<f64>().is_ok_and(|share| share > 0.0 && share <= 100.0);
            if mode != KernelsMode::Sample || !is_share {
                return Err(wrong());
            }
        }
        Ok(Self { mode, budget: budget.map(str::to_owned) })
    }
}

impl Kernels {
    /// Hands them to the shim.
    pub fn enter(&self, environment: &mut Environment) {
        environment.set("RADRM_KERNELS", self.mode.name().as_bytes());
        match &self.budget {
            Some(budget) => environment.set("RADRM_KERNELS_BUDGET", budget.as_bytes()),
            None => environment.remove("RADRM_KERNELS_BUDGET"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_budgets_are_read() {
        let entered = |text: &str| {
            let mut environment = Environment::default();
            text.parse::<Kernels>().map(|kernels| kernels.enter(&mut environment))?;
            let get = |name| environment.get(name).map(|v| String::from_utf8_lossy(v).into_owned());
            Ok::<_, LimitError>((get("RADRM_KERNELS"), get("RADRM_KERNELS_BUDGET")))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(entered("off"), Ok((some("off"), None)));
        assert_eq!(entered("sample"), Ok((some("sample"), None)));
        assert_eq!(entered("sample:0.2%"), Ok((some("sample"), some("0.2"))));
        assert_eq!(entered("sample:3"), Ok((some("sample"), some("3"))));
        for wrong in
            ["", "often", "sample:", "sample:0", "sample:101", "sample:-1", "sample:x", "all:1", "off:1"]
        {
            assert_eq!(entered(wrong), Err(LimitError::NoKernelsMode(wrong.to_owned())));
        }
    }
}
