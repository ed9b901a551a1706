//! The axes of a search.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::Spanned;

use super::checks::At;
use super::raw::{Raw, Search};
use super::settings::RESERVED;
use super::values::Values;
use crate::error::Wrong;
use crate::expand::{Axis, MAX_RUNS, combinations, samples};

/// Values of a range with a step.
const MAX_STEPS: u64 = 10_000;

/// An axis as written: values, or a range.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a list of values, or { from, to, step, log }")]
pub(super) enum RawAxis {
    /// One of these.
    List(Vec<toml::Value>),
    /// A number between two bounds.
    Range(RawRange),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRange {
    from: Number,
    to: Number,
    step: Option<Number>,
    #[serde(default)]
    log: bool,
}

/// A number that is known to be whole, or not.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
enum Number {
    Whole(i64),
    Real(f64),
}

impl Number {
    fn value(self) -> f64 {
        match self {
            Self::Whole(number) => number as f64,
            Self::Real(number) => number,
        }
    }

    fn is_whole(self) -> bool {
        matches!(self, Self::Whole(_))
    }
}

/// A value as it stands in a command.
pub(super) fn text(value: &toml::Value) -> Result<String, Wrong> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        // As written: 1.0 is no 1, and small numbers have an exponent.
        toml::Value::Float(number) => Ok(format!("{number:?}")),
        toml::Value::Boolean(truth) => Ok(truth.to_string()),
        _ => Err(Wrong::NoValue),
    }
}

/// The axes in the order of the file.
pub(super) fn checked(raw: &BTreeMap<String, Spanned<RawAxis>>) -> Result<Vec<(String, Axis)>, At> {
    let mut named: Vec<_> = raw.iter().collect();
    named.sort_by_key(|(_, axis)| axis.span().start);
    let axis = |(name, axis): (&String, &Spanned<RawAxis>)| {
        let at = axis.span().start;
        if RESERVED.contains(&name.as_str()) {
            return Err((at, Wrong::Reserved(name.clone())));
        }
        let axis = match axis.get_ref() {
            RawAxis::List(values) => Axis::List(list(name, values).map_err(|wrong| (at, wrong))?),
            RawAxis::Range(range) => self::range(range).map_err(|wrong| (at, wrong))?,
        };
        Ok((name.clone(), axis))
    };
    named.into_iter().map(axis).collect()
}

fn list(name: &str, values: &[toml::Value]) -> Result<Vec<String>, Wrong> {
    if values.is_empty() {
        return Err(Wrong::NoValues(name.to_owned()));
    }
    let texts = values.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let mut seen = BTreeSet::new();
    match texts.iter().find(|text| !seen.insert(text.as_str())) {
        Some(twice) => Err(Wrong::ValueTwice { axis: name.to_owned(), value: twice.clone() }),
        None => Ok(texts),
    }
}

fn range(raw: &RawRange) -> Result<Axis, Wrong> {
    let (from, to) = (raw.from.value(), raw.to.value());
    if !from.is_finite() || !to.is_finite() || from >= to || (raw.log && from <= 0.0) {
        return Err(Wrong::Range);
    }
    let whole = raw.from.is_whole() && raw.to.is_whole();
    let Some(step) = raw.step else { return Ok(Axis::Range { from, to, log: raw.log, whole }) };
    let by = step.value();
    // With `log` a step is a factor.
    let steps = if raw.log { (to / from).ln() / by.ln() } else { (to - from) / by };
    if !by.is_finite() || by <= f64::from(u8::from(raw.log)) || steps >= MAX_STEPS as f64 {
        return Err(Wrong::Step(MAX_STEPS));
    }
    let whole = whole && step.is_whole();
    let value = |at: u64| if raw.log { from * by.powi(at as i32) } else { from + by * at as f64 };
    // A little more than the bound is the bound: steps are not exact.
    let values = (0..=(steps + 1e-9) as u64).map(|at| match whole {
        true => format!("{}", value(at).round() as i64),
        // 0.1 + 0.2 is written as 0.3.
        false => format!("{:?}", format!("{:.12e}", value(at)).parse::<f64>().unwrap_or_default()),
    });
    Ok(Axis::List(values.collect()))
}

/// The combinations that the file asks for.
pub(super) fn choose(raw: &Raw, axes: &[(String, Axis)]) -> Result<Vec<Values>, At> {
    let random = raw.search.unwrap_or_default() == Search::Random;
    let at = |name: &str| raw.axes.get(name).map_or(0, |axis| axis.span().start);
    let combinations = match (&raw.samples, random) {
        (Some(stated), false) => return Err((stated.span().start, Wrong::OnlyRandom("samples"))),
        (None, true) => return Err((raw.command.span().start, Wrong::NoSamples)),
        (Some(stated), true) => {
            let (count, at) = (*stated.get_ref(), stated.span().start);
            match count {
                0 => return Err((at, Wrong::Zero)),
                1..=MAX_RUNS => {}
                _ => return Err((at, Wrong::TooMany(MAX_RUNS))),
            }
            let only: Vec<Axis> = axes.iter().map(|(_, axis)| axis.clone()).collect();
            let seed = raw.seed.as_ref().map_or(0, |seed| *seed.get_ref());
            samples(&only, count, seed).ok_or((at, Wrong::FewSamples(count)))?
        }
        (None, false) => {
            if let Some(seed) = &raw.seed {
                return Err((seed.span().start, Wrong::OnlyRandom("seed")));
            }
            grid(axes).map_err(|(name, wrong)| (at(&name), wrong))?
        }
    };
    let named = |texts: Vec<String>| axes.iter().map(|(name, _)| name.clone()).zip(texts).collect();
    Ok(combinations.into_iter().map(named).collect())
}

/// All combinations of axes that are lists.
fn grid(axes: &[(String, Axis)]) -> Result<Vec<Vec<String>>, (String, Wrong)> {
    let list = |(name, axis): &(String, Axis)| match axis {
        Axis::List(values) => Ok(values.clone()),
        Axis::Range { .. } => Err((name.clone(), Wrong::Continuous)),
    };
    let lists = axes.iter().map(list).collect::<Result<Vec<_>, _>>()?;
    let lengths: Vec<usize> = lists.iter().map(Vec::len).collect();
    let last = axes.last().map(|(name, _)| name.clone()).unwrap_or_default();
    let all = combinations(&lengths).ok_or((last, Wrong::TooMany(MAX_RUNS)))?;
    let texts =
        |picks: Vec<usize>| picks.iter().zip(&lists).map(|(pick, list)| list[*pick].clone()).collect();
    Ok(all.into_iter().map(texts).collect())
}

/// The combinations of some of the axes, for groups whose members state the others.
pub(super) fn rest(axes: &[(String, Axis)], stated: &BTreeSet<&str>) -> Result<Vec<Values>, (String, Wrong)> {
    let open: Vec<_> = axes.iter().filter(|(name, _)| !stated.contains(name.as_str())).cloned().collect();
    let named = |texts: Vec<String>| open.iter().map(|(name, _)| name.clone()).zip(texts).collect();
    Ok(grid(&open)?.into_iter().map(named).collect())
}
