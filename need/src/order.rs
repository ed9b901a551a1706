//! The order in which estimators of memory are asked.

use thiserror::Error;

use super::{
    Combined, Declared, EarlierStatements, Estimator, FileEstimate, History, Horus, LearnedEstimate,
    NeedResolver, OutOfMemory, Trained, UserEstimate,
};

type Boxed = Box<dyn Estimator + Send + Sync>;

/// Names of the estimators in the usual order. What a user declares comes before all of them.
pub const ORDER: [&str; 8] = [
    "history",
    "combined",
    "out_of_memory",
    "earlier_statements",
    "user_estimate",
    "file",
    "networks",
    "horus",
];

/// A name that is no estimator's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no estimator {0:?}; there are {all}", all = ORDER.join(", "))]
pub struct UnknownEstimator(pub String);

fn named(name: &str, model: &Trained) -> Option<Boxed> {
    Some(match name {
        "history" => Box::new(History),
        "combined" => Box::new(Combined(model.clone())),
        "out_of_memory" => Box::new(OutOfMemory),
        "earlier_statements" => Box::new(EarlierStatements),
        "user_estimate" => Box::new(UserEstimate::default()),
        "file" => Box::new(FileEstimate(model.clone())),
        "networks" => Box::new(LearnedEstimate(model.clone())),
        "horus" => Box::new(Horus::default()),
        _ => return None,
    })
}

/// All of them, in the usual order.
pub(super) fn usual(model: &Trained) -> Vec<Boxed> {
    let declared: Boxed = Box::new(Declared);
    [declared].into_iter().chain(ORDER.iter().filter_map(|name| named(name, model))).collect()
}

impl NeedResolver {
    /// These estimators in this order, behind what the user declares; the others are not asked. Without names: all of
    /// them in the usual order.
    ///
    /// # Errors
    /// A name is no estimator's.
    pub fn ordered(model: &Trained, names: &[String]) -> Result<Self, UnknownEstimator> {
        if names.is_empty() {
            return Ok(Self::with(model));
        }
        let mut all: Vec<Boxed> = vec![Box::new(Declared)];
        for name in names {
            all.push(named(name, model).ok_or_else(|| UnknownEstimator(name.clone()))?);
        }
        Ok(Self::new(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_has_the_names_in_the_usual_order() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/daemon.md");
        let text = std::fs::read_to_string(page).unwrap();
        let row =
            text.lines().find(|line| line.starts_with("| `estimator.order` |")).expect("a row of the order");
        let names = ORDER.map(|name| format!("`{name}`")).join(", ");
        assert!(row.contains(&names), "docs/daemon.md does not name {names}");
    }

    fn names(resolver: &NeedResolver) -> String {
        format!("{resolver:?}")
    }

    #[test]
    fn estimators_are_asked_in_the_order_that_is_named() {
        let of = |order: &[&str]| {
            let order: Vec<String> = order.iter().map(|name| (*name).to_owned()).collect();
            NeedResolver::ordered(&Trained::default(), &order)
        };
        let found = names(&of(&["file", "history"]).unwrap());
        assert_eq!(found, r#"["declared", "job's file", "own history"]"#);
        assert_eq!(names(&of(&[]).unwrap()), names(&NeedResolver::default()));
        assert_eq!(names(&of(&ORDER).unwrap()), names(&NeedResolver::default()));
        let why = of(&["history", "gpumemnet"]).unwrap_err().to_string();
        assert!(why.contains("\"gpumemnet\"") && why.contains("combined, out_of_memory"), "{why}");
    }
}
