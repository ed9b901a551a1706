//! Types of the configuration files as their sources have them: structs, enums, and default values as they are written.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, BinOp, Expr, ExprStruct, Fields, Ident, ImplItem, Item, ItemImpl, ItemStruct, Lit, LitStr,
    Member, Stmt, Token, Type,
};

use super::attributes::{attribute, doc};

/// Values of a struct by its fields.
pub type Values = BTreeMap<String, Expr>;

/// Definitions in the sources of a file, by name.
#[derive(Default)]
pub struct Sources {
    /// Structs with named fields.
    pub structs: BTreeMap<String, ItemStruct>,
    /// Values of `Default`, where it is written out.
    pub defaults: BTreeMap<String, Values>,
    /// Values of enums: name in a file and doc comment.
    pub enums: BTreeMap<String, Vec<(String, String)>>,
    /// Names of values in a file, by `Type::Variant`.
    names: BTreeMap<String, String>,
    /// Constants that are structs, by `Type::NAME`.
    constants: BTreeMap<String, Values>,
}

/// Returns true for the fields of a struct that wraps a map.
fn is_map(fields: &Fields) -> bool {
    let Fields::Unnamed(fields) = fields else { return false };
    let first = fields.unnamed.first().map(|field| &field.ty);
    matches!(first, Some(Type::Path(path)) if path.path.segments.last().is_some_and(|last| last.ident == "BTreeMap"))
}

impl Sources {
    /// Reads sources. Of two types of one name that of the earlier file counts.
    ///
    /// # Errors
    /// A source is missing or is no Rust.
    pub fn read(root: &Path, files: &[&str]) -> Result<Self> {
        let mut all = Self::default();
        for file in files.iter().rev() {
            let text = fs::read_to_string(root.join(file)).with_context(|| (*file).to_owned())?;
            for item in syn::parse_file(&text).with_context(|| (*file).to_owned())?.items {
                all.add(item)?;
            }
        }
        Ok(all)
    }

    fn add(&mut self, item: Item) -> Result<()> {
        match item {
            // What a struct without named fields wraps is a value, and a map a table whose keys are documented elsewhere.
            Item::Struct(item) if matches!(item.fields, Fields::Named(_)) || is_map(&item.fields) => {
                drop(self.structs.insert(item.ident.to_string(), item));
            }
            Item::Enum(item) => {
                let case = attribute(&item.attrs, "rename_all").unwrap_or_default();
                let variants = item.variants.iter();
                let named =
                    variants.map(|it| (it.ident.to_string(), cased(&it.ident, &case), doc(&it.attrs)));
                self.add_enum(&item.ident.to_string(), named.collect());
            }
            // The policies are listed once, for their enum and their names.
            Item::Macro(item) if item.mac.path.is_ident("policies") => {
                self.add_enum("Policy", item.mac.parse_body::<Policies>()?.0);
            }
            Item::Impl(item) => self.add_impl(&item),
            _ => {}
        }
        Ok(())
    }

    fn add_enum(&mut self, name: &str, variants: Vec<(String, String, String)>) {
        let mut values = Vec::new();
        for (variant, value, what) in variants {
            self.names.insert(format!("{name}::{variant}"), value.clone());
            values.push((value, what));
        }
        self.enums.insert(name.to_owned(), values);
    }

    fn add_impl(&mut self, item: &ItemImpl) {
        let Type::Path(path) = &*item.self_ty else { return };
        let Some(name) = path.path.segments.last().map(|segment| segment.ident.to_string()) else { return };
        let is_default = item
            .trait_
            .as_ref()
            .is_some_and(|(_, path, _)| path.segments.last().is_some_and(|it| it.ident == "Default"));
        for part in &item.items {
            match part {
                ImplItem::Fn(function) if is_default => {
                    if let Some(Stmt::Expr(Expr::Struct(values), None)) = function.block.stmts.last() {
                        self.defaults.insert(name.clone(), fields(values));
                    }
                }
                ImplItem::Const(constant) => {
                    if let Expr::Struct(values) = &constant.expr {
                        self.constants.insert(format!("{name}::{}", constant.ident), fields(values));
                    }
                }
                _ => {}
            }
        }
    }

    /// The fields of a value that is a table; none of one that is not there.
    pub fn table(&self, value: &Expr) -> Values {
        match value {
            Expr::Struct(values) => fields(values),
            Expr::Path(path) => self.constants.get(&joined(&path.path)).cloned().unwrap_or_default(),
            Expr::Call(call) => match (called(&call.func).as_str(), call.args.first()) {
                ("Some", Some(inner)) => self.table(inner),
                (function, _) => {
                    let of = function.strip_suffix("::default").and_then(|name| self.defaults.get(name));
                    of.cloned().unwrap_or_default()
                }
            },
            _ => Values::new(),
        }
    }

    /// A value as a file states it, with its unit where that is easier to read; `None` where it is not a constant.
    pub fn value(&self, value: &Expr) -> Option<String> {
        let counted =
            |count: u64, factor: u64, unit: &str| Some(format!("`{}` ({count} {unit})", count * factor));
        if let Some(number) = number(value) {
            return Some(format!("`{number}`"));
        }
        match value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(format!("`\"{}\"`", text.value())),
                Lit::Bool(it) => Some(format!("`{}`", it.value)),
                Lit::Float(it) => Some(format!("`{}`", it.base10_digits())),
                _ => None,
            },
            Expr::MethodCall(call) => self.value(&call.receiver),
            Expr::Macro(list) if list.mac.path.is_ident("vec") => {
                let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
                let parts = list.mac.parse_body_with(parser).ok()?;
                let parts: Option<Vec<_>> = parts.iter().map(|part| self.value(part)).collect();
                Some(format!("`[{}]`", parts?.join(", ").replace('`', "")))
            }
            Expr::Path(path) => match joined(&path.path).as_str() {
                "None" => Some("not set".to_owned()),
                "Bytes::ZERO" | "Millis::ZERO" | "Permille::ZERO" => Some("`0`".to_owned()),
                name => self.names.get(name).map(|name| format!("`\"{name}\"`")),
            },
            Expr::Call(call) => match (called(&call.func).as_str(), call.args.first()) {
                ("String::new" | "PathBuf::new", None) => Some("`\"\"`".to_owned()),
                ("Vec::new", None) => Some("`[]`".to_owned()),
                ("Some" | "Permille", Some(inner)) => self.value(inner),
                ("Bytes::from_gib", Some(count)) => counted(number(count)?, 1 << 30, "GiB"),
                ("Bytes::from_mib", Some(count)) => counted(number(count)?, 1 << 20, "MiB"),
                ("Millis::from_mins", Some(count)) => counted(number(count)?, 60_000, "min"),
                ("Millis::from_secs", Some(count)) => counted(number(count)?, 1000, "s"),
                _ => None,
            },
            _ => None,
        }
    }
}

/// A number that is a literal, a product, or shifted.
fn number(value: &Expr) -> Option<u64> {
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(it) => it.base10_parse().ok(),
            _ => None,
        },
        Expr::Binary(pair) => match (number(&pair.left)?, &pair.op, number(&pair.right)?) {
            (left, BinOp::Mul(_), right) => left.checked_mul(right),
            (left, BinOp::Shl(_), right) => left.checked_shl(u32::try_from(right).ok()?),
            _ => None,
        },
        _ => None,
    }
}

fn fields(values: &ExprStruct) -> Values {
    let named = values.fields.iter().filter_map(|field| match &field.member {
        Member::Named(name) => Some((name.to_string(), field.expr.clone())),
        Member::Unnamed(_) => None,
    });
    named.collect()
}

fn called(function: &Expr) -> String {
    match function {
        Expr::Path(path) => joined(&path.path),
        _ => String::new(),
    }
}

fn joined(path: &syn::Path) -> String {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>().join("::")
}

/// A variant's name in a file.
fn cased(name: &Ident, case: &str) -> String {
    let separator = match case {
        "kebab-case" => "-",
        "snake_case" => "_",
        _ => "",
    };
    let mut cased = String::new();
    for letter in name.to_string().chars() {
        if letter.is_uppercase() && !cased.is_empty() {
            cased.push_str(separator);
        }
        cased.extend(letter.to_lowercase());
    }
    cased
}

/// The list of policies: variant, name in a file, doc comment.
struct Policies(Vec<(String, String, String)>);

impl Parse for Policies {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut all = Vec::new();
        while !input.is_empty() {
            let attributes = input.call(Attribute::parse_outer)?;
            let variant: Ident = input.parse()?;
            input.parse::<Token![,]>()?;
            let name: LitStr = input.parse()?;
            input.parse::<Token![;]>()?;
            all.push((variant.to_string(), name.value(), doc(&attributes)));
        }
        Ok(Self(all))
    }
}
