//! Names under which a kernel is found in a profiler's file.
//!
//! The driver names a kernel as the linker does (mangled). Nsight Compute prints it demangled by NVIDIA's demangler, which
//! writes `(int)4` for `4`, `const float *` for `float const*`, `<unnamed>` for anonymous namespaces, `T2` for a type of a
//! template's parameter, and `[lambda(int) (instance 1)]` for `{lambda(int)#1}`; or mangled, or as the function's name
//! alone (`--print-kernel-base`).

use super::super::names;

/// Parts of a kernel's name, from the whole to the function's name alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// As it stands.
    pub(super) whole: String,
    /// Namespaces, name and template arguments in one spelling, without return type, parameters and `const`. `None` of
    /// a name that is cut, or a function's alone.
    pub(super) signature: Option<String>,
    /// The function's name alone.
    pub(super) function: String,
}

impl Name {
    /// `cut`: the name is known to be longer.
    pub(super) fn of(name: &str, cut: bool) -> Self {
        let name = name.trim();
        let whole = name.to_owned();
        let demangled = names::demangle(name);
        if cut || (demangled == name && name.starts_with("_Z")) {
            let function = last_of_mangled(name).unwrap_or(name).to_owned();
            return Name { whole, signature: None, function };
        }
        let signature = canonical(&demangled);
        let function = function(&signature).to_owned();
        let is_whole = signature != function || demangled.contains('(');
        Name { whole, signature: is_whole.then_some(signature), function }
    }
}

/// Identifiers and numbers as they are, all else sign by sign.
fn tokens(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = match is_word(first) {
            true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        tokens.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    tokens
}

/// The place of the bracket that closes the one at `open`.
fn closing(tokens: &[&str], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match *token {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// One spelling for what both demanglers write.
fn canonical(demangled: &str) -> String {
    let text = demangled.replace("<unnamed>", "(anonymous namespace)");
    let tokens = tokens(&text);
    let is_word = |token: &str| token.chars().next().is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(&token) = tokens.get(at) {
        at += 1;
        let next = tokens.get(at).copied().unwrap_or_default();
        let word = match token {
            "const" | "volatile" => continue,
            // The return type of a template.
            "void" if is_word(next) || next == "(" && tokens.get(at + 1) == Some(&"anonymous") => continue,
            "true" => "1",
            "false" => "0",
            "{" => "[",
            "}" => "]",
            "#" => {
                out.push_str(&format!("(instance {next})"));
                at += 1;
                continue;
            }
            "(" => match (next, closing(&tokens, at - 1)) {
                ("anonymous" | "instance", _) | (_, None) => token,
                (_, Some(close)) => {
                    let after = tokens.get(close + 1).copied().unwrap_or_default();
                    let is_cast = after == "-" || after.starts_with(|c: char| c.is_ascii_digit());
                    // Parameters: of a template's function they are spelled in two ways.
                    if !is_cast {
                        out.push_str("()");
                    }
                    at = close + 1;
                    continue;
                }
            },
            number if number.starts_with(|c: char| c.is_ascii_digit()) => {
                number.trim_end_matches(['u', 'U', 'l', 'L'])
            }
            other => other,
        };
        if is_word(word) && out.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            out.push(' ');
        }
        out.push_str(word);
    }
    // Those of the kernel itself.
    out.strip_suffix("()").map(str::to_owned).unwrap_or(out)
}

/// The last name of a signature, without template arguments.
fn function(signature: &str) -> &str {
    let (mut depth, mut start, mut end) = (0usize, 0, signature.len());
    for (at, c) in signature.char_indices() {
        match c {
            '<' | '(' | '[' => {
                if depth == 0 && c == '<' {
                    end = at;
                }
                depth += 1;
            }
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            ':' if depth == 0 => (start, end) = (at + 1, signature.len()),
            _ => {}
        }
    }
    &signature[start..end.max(start)]
}

/// The function's name in the beginning of a mangled one: `_ZN2at6native4fillILi4E` has `fill`.
fn last_of_mangled(name: &str) -> Option<&str> {
    let mut rest = name.strip_prefix("_Z")?;
    rest = rest.strip_prefix('N').unwrap_or(rest).trim_start_matches(['r', 'V', 'K']);
    let mut last = None;
    loop {
        // Abbreviations of namespaces: `St` is std.
        rest = rest.strip_prefix("St").unwrap_or(rest);
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let Ok(length) = rest[..digits].parse::<usize>() else { return last };
        // Cut inside a name: the function's is not known.
        let part = rest.get(digits..digits.saturating_add(length))?;
        last = Some(part);
        rest = &rest[digits + length..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_demanglers_names_of_a_kernel_are_one() {
        for (mangled, nvidia) in [
            ("_Z6vecAddPKfPfi", "vecAdd(const float *, float *, int)"),
            (
                "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEEEEviT0_",
                "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>(int, T2)",
            ),
            (
                "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
                "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, std::array<char *, (unsigned long)1>>(int, T2, T3)",
            ),
            (
                "_ZN42_GLOBAL__N__c98f0ed2_9_SoftMax_cu_9f978f6320softmax_warp_forwardIfffLi9ELb1ELb0EEEvPT0_PKT_iii",
                "void <unnamed>::softmax_warp_forward<float, float, float, (int)9, (bool)1, (bool)0>(T2 *, const T1 *, int, int, int)",
            ),
            ("_Z4copyIKiEvPT_", "void copy<const int>(T1 *)"),
        ] {
            let (ours, theirs) = (Name::of(mangled, false), Name::of(nvidia, false));
            assert_eq!(ours.signature, theirs.signature);
            assert_eq!(ours.function, theirs.function);
            assert!(ours.signature.is_some(), "{mangled}");
        }
    }

    #[test]
    fn lambdas_are_told_apart_by_their_number_in_both_spellings() {
        let itanium = "void at::native::elementwise_kernel<128, 4, void at::native::gpu_kernel_impl<at::native::copy(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(float)#1}>(at::TensorIteratorBase&, int)::{lambda(int)#2}>(int, float)";
        let nvidia = "void at::native::elementwise_kernel<(int)128, (int)4, void at::native::gpu_kernel_impl<at::native::copy(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() const::[lambda(float) (instance 1)]>(at::TensorIteratorBase &, T1)::[lambda(int) (instance 2)]>(int, T3)";
        let of = |text| Name::of(text, false).signature;
        assert_eq!(of(itanium), of(nvidia));
        assert_ne!(of(itanium), of(&nvidia.replace("instance 1", "instance 2")));
    }

    #[test]
    fn template_arguments_tell_kernels_apart() {
        let of = |text| Name::of(text, false);
        assert_ne!(of("void f<(int)4>(T1)").signature, of("void f<(int)8>(T1)").signature);
        assert_eq!(of("void f<-1, true>(int)").signature, of("void f<(int)-1, (bool)1>(int)").signature);
        assert_eq!(
            of("void f<unsigned int, 4ul>()").signature,
            of("void f<unsigned int, (unsigned long)4>()").signature
        );
        let alone = of("vectorized_elementwise_kernel");
        assert_eq!((alone.signature, alone.function.as_str()), (None, "vectorized_elementwise_kernel"));
    }

    #[test]
    fn a_cut_name_still_has_its_function() {
        for (name, function) in [
            (
                "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFun",
                "vectorized_elementwise_kernel",
            ),
            ("_Z6vecAddPKf", "vecAdd"),
            ("_ZN2at6native29vectorized_ele", "_ZN2at6native29vectorized_ele"),
            ("triton_poi_fused", "triton_poi_fused"),
            ("_Z", "_Z"),
        ] {
            let of = Name::of(name, true);
            assert_eq!((of.signature, of.function.as_str()), (None, function), "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_name_is_survived(name in "\\PC{0,60}", kernel in "(_Z[N0-9a-zIELi_]{0,30}|[a-z:<>(){}\\[\\]#, 0-9*&]{0,40})") {
            for text in [&name, &kernel] {
                for cut in [false, true] {
                    let of = Name::of(text, cut);
                    proptest::prop_assert!(of.whole == text.trim());
                }
            }
        }
    }
}
