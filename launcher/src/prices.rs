//! Options that name what an hour of a card costs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use radrm_analyzer::Prices;
use radrm_emulator_machine::Models;
use radrm_os::untrusted;
use radrm_text::{did_you_mean, explained};
use serde::Deserialize;
use thiserror::Error;

/// Bytes of a file of prices.
const MAX_FILE: usize = 64 << 10;
/// Prices up to this are not taken for a slip.
const MAX_PRICE: f64 = 1e6;

/// The options as they stand on the command line.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct PriceFlags {
    /// Cost of an hour on a card, in money or in watts; may be repeated. The names are those of `radrm machines`
    #[arg(id = "price", long = "price", value_name = "CARD=COST")]
    one: Vec<String>,
    /// Costs of an hour by FILE, in TOML: `currency = "EUR"`, and in a table `[per_hour]` lines such as `H100-80GB = 3.50`
    #[arg(id = "price_file", long = "prices", value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Why a price is not taken, as one sentence.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PriceError {
    /// A price of the command line is wrong.
    #[error("--price {}: {why}", radrm_text::clean(text))]
    Option {
        /// As it stands there.
        text: String,
        /// Reason.
        why: String,
    },
    /// The file cannot be read, or is not as it should be.
    #[error("--prices {}: {}", file.display(), radrm_text::clean(why))]
    File {
        /// The file.
        file: PathBuf,
        /// Reason.
        why: String,
    },
}

impl PriceFlags {
    /// Name of the first option that was given.
    #[must_use]
    pub fn given(&self) -> Option<&'static str> {
        let one = (!self.one.is_empty()).then_some("--price");
        one.or(self.file.as_ref().map(|_| "--prices"))
    }

    /// The prices; those of the command line count before those of the file.
    ///
    /// # Errors
    /// [`PriceError`].
    pub fn resolve(&self) -> Result<Prices, PriceError> {
        let mut prices = self.file.as_deref().map(read).transpose()?.unwrap_or_default();
        for text in &self.one {
            let (card, price) = parse(text).map_err(|why| PriceError::Option { text: text.clone(), why })?;
            prices.per_hour.insert(card, price);
        }
        Ok(prices)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    currency: String,
    per_hour: BTreeMap<String, f64>,
}

fn read(file: &Path) -> Result<Prices, PriceError> {
    let bytes = untrusted::read(file, MAX_FILE).map_err(|error| radrm_base::reason(&error));
    let prices = bytes.and_then(|bytes| of_file(&bytes));
    prices.map_err(|why| PriceError::File { file: file.to_owned(), why })
}

fn of_file(bytes: &[u8]) -> Result<Prices, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    let file: File = toml::from_str(text).map_err(|error| {
        let before = error.span().map_or("", |span| &text[..span.start]);
        format!("line {}: {}", before.matches('\n').count() + 1, explained(error.message()))
    })?;
    let mut per_hour = BTreeMap::new();
    for (name, price) in file.per_hour {
        let card = card(&name)?;
        if per_hour.insert(card.clone(), cost(price)?).is_some() {
            return Err(format!("{card} has two prices"));
        }
    }
    Ok(Prices { currency: file.currency, per_hour })
}

fn parse(text: &str) -> Result<(String, f64), String> {
    let (name, price) = text.split_once('=').ok_or("write CARD=COST")?;
    let price = price.trim().parse().map_err(|_| "write CARD=COST with a number".to_owned())?;
    Ok((card(name.trim())?, cost(price)?))
}

fn cost(price: f64) -> Result<f64, String> {
    let is_price = price > 0.0 && price <= MAX_PRICE;
    is_price
        .then_some(price)
        .ok_or_else(|| format!("a cost is above 0 and up to {MAX_PRICE}, and {price} is not"))
}

/// The model with this name or alias.
fn card(name: &str) -> Result<String, String> {
    let models = Models::known().map_err(|error| error.to_string())?;
    models.find(name).map(|model| model.id.clone()).ok_or_else(|| {
        let known = models.gpu.iter().map(|model| model.id.as_str());
        format!("no card has the name {name}{}; `radrm machines` lists them", did_you_mean(name, known))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_by_model_or_alias_and_the_command_line_counts_first() {
        let prices = of_file(b"currency = \"EUR\"\n[per_hour]\nh100-80gb = 3.5\nT4 = 1\n").unwrap();
        assert_eq!((prices.currency.as_str(), prices.per_hour["H100-80GB"]), ("EUR", 3.5));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prices.toml");
        std::fs::write(&file, "[per_hour]\nT4 = 1\nA10 = 2\n").unwrap();
        let flags = PriceFlags { one: vec!["t4 = 0.5".to_owned()], file: Some(file) };
        let per_hour = flags.resolve().unwrap().per_hour;
        assert_eq!((per_hour["T4"], per_hour["A10"], per_hour.len()), (0.5, 2.0, 2));
    }

    #[test]
    fn wrong_prices_are_refused_in_one_sentence() {
        for (text, part) in [
            ("[per_hour]\nH10O = 3\n", "the name H10O"),
            ("[per_hour]\nT4 = -1\n", "above 0"),
            ("[per_hour]\nT4 = nan\n", "above 0"),
            ("[per_hour]\nT4 = 1\nt4 = 2\n", "two prices"),
            ("[per_hour]\n\nT4 = \"3\"\n", "line 3"),
            ("[per_hours]\nT4 = 3\n", "did you mean per_hour?"),
            ("", "per_hour"),
        ] {
            let sentence = of_file(text.as_bytes()).unwrap_err();
            assert!(sentence.contains(part) && !sentence.contains('\n'), "{text}: {sentence}");
        }
        for text in ["T4", "T4=", "T4=x", "T4=0", "=3", "T4=inf"] {
            let flags = PriceFlags { one: vec![text.to_owned()], ..PriceFlags::default() };
            let sentence = flags.resolve().unwrap_err().to_string();
            assert!(sentence.starts_with(&format!("--price {text}: ")), "{sentence}");
        }
        let flags = PriceFlags { file: Some("/nosuch/prices".into()), ..PriceFlags::default() };
        let sentence = flags.resolve().unwrap_err().to_string();
        assert!(sentence.starts_with("--prices /nosuch/prices: ") && !sentence.contains('\n'), "{sentence}");
    }
}
