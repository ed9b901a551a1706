//! Code that runs inside other people's programs does not panic: no `unwrap`, no `expect`, no
//! panicking macro, no indexing in the shim and in the writer's side of telemetry.
//!
//! The scan reads the syntax, so it sees neither panics inside called functions nor arithmetic;
//! it keeps out what is easily written without thinking. Tests are left out. Code that the
//! compiler evaluates (`const`) may panic: that stops a build, not a program.

use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::{Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::finding::Finding;
use super::modules::is_for_tests;
use xtask::sources;

/// Parts of telemetry that run in a launcher or a reader, never in the program that is watched.
const NOT_WRITER: [&str; 7] = [
    "telemetry/src/reader",
    "telemetry/src/segment.rs",
    "telemetry/src/ledger/file.rs",
    "telemetry/src/ledger/scope/report.rs",
    "telemetry/src/ledger/scope/setup.rs",
    "telemetry/src/ledger/scope/tests.rs",
    "telemetry/src/ledger/view.rs",
];

const METHODS: [&str; 5] = ["unwrap", "expect", "unwrap_err", "expect_err", "unwrap_unchecked"];
const MACROS: [&str; 8] =
    ["panic", "unreachable", "todo", "unimplemented", "assert", "assert_eq", "assert_ne", "dbg"];

/// Finds what can panic.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (place, text) in sources::texts(root, &["shim/src", "telemetry/src"])? {
        if NOT_WRITER.iter().any(|other| place.starts_with(other)) {
            continue;
        }
        for (line, what) in scan(&text).with_context(|| place.clone())? {
            findings.push(format!("{place}:{line}: {what} in code that must not panic"));
        }
    }
    Ok(findings)
}

/// Places that can panic: line and what is there.
fn scan(text: &str) -> Result<Vec<(usize, String)>> {
    let mut scan = Scan { lines: text.lines().collect(), found: Vec::new() };
    scan.visit_file(&syn::parse_file(text)?);
    Ok(scan.found)
}

struct Scan<'a> {
    lines: Vec<&'a str>,
    found: Vec<(usize, String)>,
}

impl Scan<'_> {
    fn report(&mut self, span: Span, rule: &str, what: String) {
        let line = span.start().line;
        if !self.excused(line, rule) {
            self.found.push((line, what));
        }
    }

    /// Returns true if the line, or a comment directly above it, states why this is right here.
    fn excused(&self, line: usize, rule: &str) -> bool {
        let says = |text: &&str| {
            let mark = format!("// tidy: allow({rule}): ");
            text.split_once(&mark).is_some_and(|(_, reason)| !reason.trim().is_empty())
        };
        let index = line.saturating_sub(1);
        let above = self.lines[..index].iter().rev().take_while(|text| text.trim_start().starts_with("//"));
        self.lines.get(index).into_iter().chain(above).any(says)
    }

    /// Looks through the arguments of a macro, whose syntax is its own.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut after_dot = false;
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    self.tokens(group.stream());
                    after_dot = false;
                }
                TokenTree::Ident(name) => {
                    let text = name.to_string();
                    if after_dot && METHODS.contains(&text.as_str()) {
                        self.report(name.span(), rule_of(&text), format!(".{text}()"));
                    }
                    after_dot = false;
                }
                TokenTree::Punct(punct) => after_dot = punct.as_char() == '.',
                TokenTree::Literal(_) => after_dot = false,
            }
        }
    }
}

/// The rule that a method breaks.
fn rule_of(method: &str) -> &'static str {
    match method {
        "expect" | "expect_err" => "expect",
        _ => "unwrap",
    }
}

impl<'ast> Visit<'ast> for Scan<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    // Evaluated while compiling.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_type_array(&mut self, _: &'ast syn::TypeArray) {}

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let name = call.method.to_string();
        if METHODS.contains(&name.as_str()) {
            self.report(call.method.span(), rule_of(&name), format!(".{name}()"));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_index(&mut self, index: &'ast syn::ExprIndex) {
        // `x[..]` cannot fail.
        let whole =
            matches!(&*index.index, syn::Expr::Range(range) if range.start.is_none() && range.end.is_none());
        if !whole {
            self.report(index.bracket_token.span.open(), "indexing", "indexing".to_owned());
        }
        visit::visit_expr_index(self, index);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        if MACROS.contains(&name.as_str()) {
            let span = call.path.segments.last().map_or_else(Span::call_site, |segment| segment.ident.span());
            self.report(span, "panic", format!("{name}!"));
        }
        self.tokens(call.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        scan(text).unwrap()
    }

    fn one(line: usize, what: &str) -> Vec<(usize, String)> {
        vec![(line, what.to_owned())]
    }

    #[test]
    fn each_way_to_panic_is_found_with_its_line() {
        assert_eq!(found("fn f(x: Option<u8>) {\n    x.unwrap();\n}"), one(2, ".unwrap()"));
        assert_eq!(found("fn f(x: Option<u8>) {\n    x.expect(\"x\");\n}"), one(2, ".expect()"));
        assert_eq!(found("fn f(x: &[u8]) -> u8 {\n\n    x[3]\n}"), one(3, "indexing"));
        assert_eq!(found("fn f() { core::panic!(\"x\") }"), one(1, "panic!"));
        assert_eq!(found("fn f() { unreachable!() }"), one(1, "unreachable!"));
        assert_eq!(found("fn f(x: &[u8]) -> &[u8] { &x[1..] }"), one(1, "indexing"));
        assert_eq!(found("impl A { fn f(&self) { assert!(true) } }"), one(1, "assert!"));
    }

    #[test]
    fn macro_arguments_are_looked_through() {
        assert_eq!(found("fn f(x: Option<u8>) {\n    g!(1,\n    x.unwrap());\n}"), one(3, ".unwrap()"));
        assert_eq!(found("fn f() { g!(unwrap) }"), []);
    }

    #[test]
    fn what_cannot_panic_or_runs_elsewhere_is_left_alone() {
        for text in [
            "fn f(x: Option<u8>) { x.unwrap_or(1); x.unwrap_or_default(); }",
            "fn f(x: &[u8]) -> &[u8] { &x[..] }",
            "const X: u8 = [1, 2][0];\nconst _: () = assert!(true);",
            "#[cfg(test)]\nmod tests { fn f() { panic!() } }",
            "#[test]\nfn f() { None::<u8>.unwrap(); }",
            "fn f() { debug_assert!(true) }",
            "/// x.unwrap()\nfn f() { let _ = \"panic!()\"; } // x[1]",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn an_exception_needs_the_right_rule_and_a_reason() {
        let with = |comment: &str| {
            format!("fn f(x: [u8; 4], i: u8) -> u8 {{\n    {comment}\n    x[usize::from(i & 3)]\n}}")
        };
        assert_eq!(found(&with("// tidy: allow(indexing): masked to the length")), []);
        assert_eq!(found(&with("// tidy: allow(indexing): ")), one(3, "indexing"));
        assert_eq!(found(&with("// tidy: allow(unwrap): masked")), one(3, "indexing"));
        assert_eq!(found(&with("let _ = 0; // tidy: allow(indexing): not above it")), one(3, "indexing"));
    }
}
