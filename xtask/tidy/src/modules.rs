//! The modules of a crate as its sources declare them, and which file uses what of which other file.
//!
//! Names are followed through imports and re-exports to the file that defines them. What the syntax does not show is
//! not seen: methods that are called on a value, and what macros make. Code of tests is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// The line on which a file uses another for the first time, by index of the file that uses and of the one used.
pub type Edges = BTreeMap<(usize, usize), usize>;

/// Sources of one target of a package (a library, a program).
#[derive(Default)]
pub struct Crate {
    /// The files, the target's own first.
    pub files: Vec<PathBuf>,
    modules: Vec<Module>,
}

#[derive(Default)]
struct Module {
    file: usize,
    parent: usize,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    imports: Vec<Import>,
    paths: Vec<(Vec<String>, usize)>,
}

/// One name that a `use` brings into scope; `None` is `*`.
struct Import {
    name: Option<String>,
    path: Vec<String>,
    line: usize,
    /// Passed on to others: a facade, which is no use of its own.
    passed_on: bool,
}

#[derive(Clone, Copy)]
enum Target {
    Module(usize),
    /// Something that a module defines.
    Item(usize),
}

impl Crate {
    /// Reads a target from its first file.
    ///
    /// # Errors
    /// A file is missing or not Rust.
    pub fn read(file: &Path) -> Result<Self> {
        let mut made = Self::default();
        let folder = file.parent().unwrap_or(file).to_path_buf();
        made.read_module(file, &folder, 0)?;
        Ok(made)
    }

    /// Reads the module of a file; its child modules lie below `folder`.
    fn read_module(&mut self, file: &Path, folder: &Path, parent: usize) -> Result<usize> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let syntax = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        self.files.push(file.to_path_buf());
        let module = self.add(Module { file: self.files.len() - 1, parent, ..Module::default() });
        self.read_items(&syntax.items, module, file, folder)?;
        Ok(module)
    }

    fn read_items(&mut self, items: &[syn::Item], module: usize, file: &Path, folder: &Path) -> Result<()> {
        for item in items {
            let syn::Item::Mod(declared) = item else {
                Names { module: &mut self.modules[module], depth: 0 }.visit_item(item);
                continue;
            };
            if is_for_tests(&declared.attrs) {
                continue;
            }
            let name = plain(&declared.ident);
            let child = if let Some((_, items)) = &declared.content {
                let of_file = self.modules[module].file;
                let child = self.add(Module { file: of_file, parent: module, ..Module::default() });
                self.read_items(items, child, file, &folder.join(&name))?;
                child
            } else {
                let flat = folder.join(format!("{name}.rs"));
                let (source, below) = match named_path(&declared.attrs) {
                    Some(path) => {
                        let source = file.with_file_name(path);
                        let below = source.parent().unwrap_or(folder).to_path_buf();
                        (source, below)
                    }
                    None if flat.is_file() => (flat, folder.join(&name)),
                    None => (folder.join(&name).join("mod.rs"), folder.join(&name)),
                };
                self.read_module(&source, &below, module)?
            };
            self.modules[module].children.insert(name, child);
        }
        Ok(())
    }

    fn add(&mut self, module: Module) -> usize {
        self.modules.push(module);
        self.modules.len() - 1
    }

    /// Uses of files by other files.
    pub fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (index, module) in self.modules.iter().enumerate() {
            let imports = module.imports.iter().filter(|import| !import.passed_on && import.name.is_some());
            let imports = imports.map(|import| (&import.path, import.line));
            for (path, line) in imports.chain(module.paths.iter().map(|(path, line)| (path, *line))) {
                if let Some(Target::Item(owner)) = self.resolve(index, path, &mut Vec::new()) {
                    let used = self.modules[owner].file;
                    if used != module.file {
                        let first = edges.entry((module.file, used)).or_insert(line);
                        *first = line.min(*first);
                    }
                }
            }
        }
        edges
    }

    /// Target of a path in a module; `None` for what is not of this crate.
    fn resolve(&self, module: usize, path: &[String], seen: &mut Vec<(usize, String)>) -> Option<Target> {
        let mut here = module;
        let mut rest = path;
        let mut anchored = false;
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "crate" => here = 0,
                "self" => {}
                "super" => here = self.modules[here].parent,
                _ => break,
            }
            anchored = true;
            rest = others;
        }
        for (index, name) in rest.iter().enumerate() {
            let last = index + 1 == rest.len();
            match self.look_up(here, name, last, seen) {
                Some(Target::Module(inner)) => here = inner,
                Some(item) => return Some(item),
                // Made by a macro, which the syntax does not show.
                None if anchored || index > 0 => return Some(Target::Item(here)),
                None => return None,
            }
        }
        Some(Target::Module(here))
    }

    /// Target of a name in the scope of a module.
    fn look_up(
        &self,
        module: usize,
        name: &str,
        last: bool,
        seen: &mut Vec<(usize, String)>,
    ) -> Option<Target> {
        let key = (module, name.to_owned());
        if seen.contains(&key) {
            return None;
        }
        let here = &self.modules[module];
        if last && here.items.contains(name) {
            return Some(Target::Item(module));
        }
        if let Some(child) = here.children.get(name) {
            return Some(Target::Module(*child));
        }
        if here.items.contains(name) {
            return Some(Target::Item(module));
        }
        seen.push(key);
        let named = here.imports.iter().find(|import| import.name.as_deref() == Some(name));
        let found = match named {
            Some(import) => self.resolve(module, &import.path, seen),
            None => here.imports.iter().filter(|import| import.name.is_none()).find_map(|import| match self
                .resolve(module, &import.path, seen)?
            {
                Target::Module(other) if other != module => self.look_up(other, name, last, seen),
                _ => None,
            }),
        };
        seen.pop();
        found
    }
}

/// Collects the names that a module defines, imports and mentions.
struct Names<'a> {
    module: &'a mut Module,
    /// Depth in functions and other items: only what stands at the top is an item of the module.
    depth: usize,
}

impl Names<'_> {
    fn import(&mut self, tree: &syn::UseTree, path: &mut Vec<String>, passed_on: bool) {
        let mut add = |name: Option<String>, path: Vec<String>, line: usize| {
            self.module.imports.push(Import { name, path, line, passed_on });
        };
        match tree {
            syn::UseTree::Path(step) => {
                path.push(plain(&step.ident));
                self.import(&step.tree, path, passed_on);
                path.pop();
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, path, passed_on);
                }
            }
            syn::UseTree::Glob(glob) => add(None, path.clone(), glob.star_token.span.start().line),
            syn::UseTree::Name(syn::UseName { ident }) => {
                let (name, path) = ended(path, ident);
                add(Some(name), path, ident.span().start().line);
            }
            syn::UseTree::Rename(rename) => {
                let (_, path) = ended(path, &rename.ident);
                add(Some(plain(&rename.rename)), path, rename.ident.span().start().line);
            }
        }
    }

    /// Finds the paths in the arguments of a macro, whose syntax is its own.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) if colons == 2 && !path.is_empty() => path.push(plain(&name)),
                TokenTree::Ident(name) => {
                    self.end_path(&mut path, line);
                    line = name.span().start().line;
                    path.push(plain(&name));
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => {
                    self.end_path(&mut path, line);
                    self.tokens(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => self.end_path(&mut path, line),
            }
            colons = 0;
        }
        self.end_path(&mut path, line);
    }

    fn end_path(&mut self, path: &mut Vec<String>, line: usize) {
        // A single word may be anything: a field, a variable, a key of the macro's own.
        if path.len() > 1 {
            self.module.paths.push((path.clone(), line));
        }
        path.clear();
    }
}

/// The name that an import without `as` brings, and its whole path.
fn ended(path: &[String], ident: &syn::Ident) -> (String, Vec<String>) {
    let mut path = path.to_vec();
    if ident != "self" {
        path.push(plain(ident));
    }
    (path.last().cloned().unwrap_or_default(), path)
}

fn plain(ident: &proc_macro2::Ident) -> String {
    ident.to_string().trim_start_matches("r#").to_owned()
}

fn named_path(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("path")).find_map(|attribute| {
        let syn::Meta::NameValue(syn::MetaNameValue { value: syn::Expr::Lit(value), .. }) = &attribute.meta
        else {
            return None;
        };
        match &value.lit {
            syn::Lit::Str(text) => Some(text.value()),
            _ => None,
        }
    })
}

/// Returns true if an item is compiled for tests only.
pub fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Meta>().is_ok_and(|condition| asks_for_tests(&condition)))
    })
}

fn asks_for_tests(condition: &syn::Meta) -> bool {
    match condition {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("all") => list
            .parse_args_with(syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated)
            .is_ok_and(|all| all.iter().any(asks_for_tests)),
        _ => false,
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn defined(item: &syn::Item) -> Option<&syn::Ident> {
    match item {
        syn::Item::Const(item) => Some(&item.ident),
        syn::Item::Enum(item) => Some(&item.ident),
        syn::Item::Fn(item) => Some(&item.sig.ident),
        syn::Item::Macro(item) => item.ident.as_ref(),
        syn::Item::Static(item) => Some(&item.ident),
        syn::Item::Struct(item) => Some(&item.ident),
        syn::Item::Trait(item) => Some(&item.ident),
        syn::Item::Type(item) => Some(&item.ident),
        syn::Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        if let Some(name) = defined(item).filter(|_| self.depth == 0) {
            self.module.items.insert(plain(name));
        }
        self.depth += 1;
        visit::visit_item(self, item);
        self.depth -= 1;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let passed_on = !matches!(item.vis, syn::Visibility::Inherited);
        self.import(&item.tree, &mut Vec::new(), passed_on);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    // Says who may see an item: no use of anything.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let line = path.segments.first().map_or(0, |segment| segment.ident.span().start().line);
        let names = path.segments.iter().map(|segment| plain(&segment.ident)).collect();
        self.module.paths.push((names, line));
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.tokens(call.tokens.clone());
    }
}
