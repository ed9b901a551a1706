//! Names of kernels: from the driver's mangled ones to ones people read.

/// Longest mangled name that is demangled. What is longer is shown as it is:
/// demangling can make a name many times longer.
const MAX_MANGLED: usize = 4096;

/// Most characters of a demangled name that are kept.
const KEPT: usize = 16 * 1024;

/// The name in the program's source language; the name itself if it is not
/// mangled, or cut so that it cannot be demangled.
pub fn demangle(name: &str) -> String {
    if name.len() > MAX_MANGLED {
        return name.to_owned();
    }
    if let Ok(demangled) = rustc_demangle::try_demangle(name) {
        return cut(format!("{demangled:#}"), KEPT);
    }
    if name.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
        && let Ok(demangled) = symbol.demangle()
    {
        return cut(demangled, KEPT);
    }
    name.to_owned()
}

/// A mangled name as people read it in a stack: demangled, without return type and parameters.
pub(crate) fn qualified(name: &str) -> String {
    let demangled = demangle(name);
    let short = without_return_type(without_parameters(&demangled));
    if short.is_empty() { demangled } else { short.to_owned() }
}

/// A demangled name without return type, parameters and namespaces:
/// `void at::native::add<4, at::Half>(int, char*)` becomes `add<4, Half>`.
pub fn readable(name: &str) -> String {
    let name = without_return_type(without_parameters(name));
    let short = without_namespaces(name);
    if short.is_empty() { name.to_owned() } else { short }
}

/// At most `width` characters; a cut is marked.
fn cut(text: String, width: usize) -> String {
    if text.chars().count() <= width {
        return text;
    }
    let mut out: String = text.chars().take(width.saturating_sub(1)).collect();
    out.push('…');
    out
}

/// Depth of brackets before each character; `<` and `>` of operators and of
/// arrows are not brackets.
fn depths(name: &str) -> Vec<(usize, char, usize)> {
    let mut depth = 0usize;
    let mut before = ' ';
    let mut out = Vec::with_capacity(name.len());
    for (at, c) in name.char_indices() {
        let operator = name[..at].trim_end_matches(['<', '>', '=', '-', '(']).ends_with("operator");
        let arrow = c == '>' && before == '-';
        if matches!(c, ')' | ']' | '}') || (c == '>' && !operator && !arrow) {
            depth = depth.saturating_sub(1);
        }
        out.push((at, c, depth));
        if matches!(c, '(' | '[' | '{') || (c == '<' && !operator) {
            depth += 1;
        }
        before = c;
    }
    out
}

fn without_parameters(name: &str) -> &str {
    let depths = depths(name);
    // The last opening bracket at the outermost level, if the name ends with
    // its closing one (a clone suffix may follow).
    let close = depths.iter().rposition(|&(_, c, depth)| c == ')' && depth == 0);
    let Some(close) = close else { return name };
    let open = depths[..close].iter().rposition(|&(_, c, depth)| c == '(' && depth == 0);
    let Some(open) = open else { return name };
    let at = depths[open].0;
    let head = name[..at].trim_end();
    if head.is_empty()
        || head.ends_with("::")
        || head.ends_with("operator")
        || name[depths[close].0..].contains("::")
    {
        return name;
    }
    head
}

fn without_return_type(name: &str) -> &str {
    if name.contains("operator") {
        return name;
    }
    match depths(name).iter().rfind(|&&(_, c, depth)| c == ' ' && depth == 0) {
        Some(&(at, ..)) if !name[at + 1..].is_empty() => &name[at + 1..],
        _ => name,
    }
}

/// Drops every `name::` and `name<...>::` that stands before another name.
fn without_namespaces(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    // Where the name that is being read began in `out`, per open bracket.
    let mut starts = vec![0];
    let mut chars = name.char_indices();
    while let Some((at, c)) = chars.next() {
        let skipped = if name[at..].starts_with("::") && !name[at + 2..].is_empty() {
            Some(2)
        } else {
            anonymous(&name[at..])
        };
        if let Some(skipped) = skipped {
            for _ in 1..skipped {
                chars.next();
            }
            out.truncate(starts.last().copied().unwrap_or(0));
            continue;
        }
        out.push(c);
        match c {
            '<' | '(' | '[' | '{' => starts.push(out.len()),
            '>' | ')' | ']' | '}' if starts.len() > 1 => {
                starts.pop();
            }
            c if c.is_alphanumeric() || matches!(c, '_' | '$' | '~') => {}
            _ => {
                if let Some(start) = starts.last_mut() {
                    *start = out.len();
                }
            }
        }
    }
    out
}

/// Length in characters of an anonymous namespace with its `::`.
fn anonymous(text: &str) -> Option<usize> {
    ["(anonymous namespace)::", "_GLOBAL__N__::"].iter().find(|a| text.starts_with(**a)).map(|a| a.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mangled_names_become_readable() {
        for (mangled, full, short) in [
            ("square", "square", "square"),
            ("_Z6squarePKfPfi", "square(float const*, float*, int)", "square"),
            (
                "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEEEEviT0_",
                "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int, at::native::CUDAFunctor_add<float>)",
                "vectorized_elementwise_kernel<4, CUDAFunctor_add<float> >",
            ),
            ("_RNvCskwGfYPst2Cb_3foo3bar", "foo::bar", "bar"),
            ("triton_poi_fused_add_0", "triton_poi_fused_add_0", "triton_poi_fused_add_0"),
            ("_Z", "_Z", "_Z"),
            ("", "", ""),
        ] {
            let name = demangle(mangled);
            assert_eq!(name, full);
            assert_eq!(readable(&name), short);
        }
    }

    #[test]
    fn odd_names_are_survived() {
        for (name, short) in [
            ("void (anonymous namespace)::copy<int>(int*)", "copy<int>"),
            ("a::operator()(int)", "operator()"),
            ("operator<<(int)", "operator<<"),
            ("f<(x > 1)>(int)", "f<(x > 1)>"),
            (")", ")"),
            (">>>", ">>>"),
            ("::", "::"),
            ("a::", "a::"),
            ("ключ<ß>::λ", "λ"),
            ("sm80_xmma_gemm_f16f16 [clone .kd]", "[clone .kd]"),
        ] {
            assert_eq!(readable(name), short, "{name}");
        }
        let long = "_ZN".repeat(5000);
        assert_eq!(demangle(&long), long);
    }
}
