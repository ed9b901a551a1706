//! What is recorded of kernel launches: `--kernels`.

use std::str::FromStr;

use radrm_telemetry::KernelsMode;

use super::environment::Environment;

/// A mode, and the share of the running time that timing may take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kernels {
    mode: KernelsMode,
    /// Per cent, as written.
    budget: Option<String>,
}

impl FromStr for Kernels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, budget) = match text.split_once(':') {
            Some((name, budget)) => (name, Some(budget.strip_suffix('%').unwrap_or(budget))),
            None => (text, None),
        };
        let mode = KernelsMode::from_name(name.as_bytes()).ok_or_else(|| {
            format!("`{text}` is none of off, count, sample, sample:PERCENT (up to 100), all")
        })?;
        if let Some(budget) = budget {
            let is_share = budget.parse::<f64>().is_ok_and(|share| share > 0.0 && share <= 100.0);
            if mode != KernelsMode::Sample || !is_share {
                return Err(format!(
                    "`{text}` is none of off, count, sample, sample:PERCENT (up to 100), all"
                ));
            }
        }
        Ok(Self { mode, budget: budget.map(str::to_owned) })
    }
}

impl Kernels {
    /// Tells the shim.
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
            Ok::<_, String>((get("RADRM_KERNELS"), get("RADRM_KERNELS_BUDGET")))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(entered("off"), Ok((some("off"), None)));
        assert_eq!(entered("sample"), Ok((some("sample"), None)));
        assert_eq!(entered("sample:0.2%"), Ok((some("sample"), some("0.2"))));
        assert_eq!(entered("sample:3"), Ok((some("sample"), some("3"))));
        for wrong in
            ["", "often", "sample:", "sample:0", "sample:101", "sample:-1", "sample:x", "all:1", "off:1"]
        {
            assert_eq!(
                entered(wrong),
                Err(format!("`{wrong}` is none of off, count, sample, sample:PERCENT (up to 100), all"))
            );
        }
    }
}
