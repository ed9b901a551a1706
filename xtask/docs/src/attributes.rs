//! Attributes of a type and of its fields.

use syn::{Expr, ExprLit, Lit, Meta};

/// The value of `#[serde(KEY = "VALUE")]`.
pub fn attribute(attributes: &[syn::Attribute], key: &str) -> Option<String> {
    let mut found = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        // What is not of the form KEY = "VALUE" ends the walk; the keys before it were seen.
        let _ = attribute.parse_nested_meta(|meta| {
            if let Ok(value) = meta.value() {
                let value: syn::LitStr = value.parse()?;
                if meta.path.is_ident(key) {
                    found = Some(value.value());
                }
            }
            Ok(())
        });
    }
    found
}

/// Returns true if the attributes have `#[serde(KEY)]`.
pub fn has(attributes: &[syn::Attribute], key: &str) -> bool {
    let mut found = false;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        let _ = attribute.parse_nested_meta(|meta| {
            found |= meta.path.is_ident(key);
            // The value is of no interest, and has to be read.
            meta.value().and_then(|value| value.parse::<Expr>()).map(drop).or(Ok(()))
        });
    }
    found
}

/// The doc comment in one line.
pub fn doc(attributes: &[syn::Attribute]) -> String {
    let line = |attribute: &syn::Attribute| match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    };
    attributes.iter().filter_map(line).collect::<Vec<_>>().join(" ")
}
