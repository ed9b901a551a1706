//! Reading PTX text: kernels, their parameters and resources, module variables.
//!
//! Nothing is compiled, so the number of registers is an estimate: PTX names virtual registers
//! without end, the compiler keeps about a quarter of them live at a time. See
//! [`estimate_registers`].

use std::collections::HashMap;

use crate::models::image::{GlobalInfo, Image, ImageError, KernelInfo};

/// Returns true if the bytes look like PTX: text whose first directive is `.version`.
pub fn looks_like_ptx(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(&bytes[..bytes.len().min(1 << 16)]).or_else(|e| {
        // A cut in the middle of a character (in a comment) is no reason to say no.
        std::str::from_utf8(&bytes[..e.valid_up_to()])
    }) else {
        return false;
    };
    Tokens { text, at: 0 }.next() == Some(".version")
}

/// Parses PTX text.
///
/// # Errors
/// [`ImageError::BadPtx`] if `.version` or `.target` is missing or a body is not closed.
pub fn parse(text: &str) -> Result<Image, ImageError> {
    let mut tokens = Tokens { text, at: 0 };
    let mut image = Image { is_ptx: true, size: text.len(), ..Image::default() };
    let mut shared_at_module: HashMap<&str, u32> = HashMap::new();
    let (mut version, mut target) = (false, false);
    while let Some(token) = tokens.next() {
        match token {
            ".version" => {
                image.ptx_version = tokens.next().map_or(0, tenths);
                version = true;
            }
            ".target" => {
                let name = tokens.next().unwrap_or("");
                let digits: String =
                    name.trim_start_matches("sm_").chars().take_while(char::is_ascii_digit).collect();
                image.arch = digits.parse().unwrap_or(0);
                target = true;
            }
            ".entry" => {
                let kernel = entry(&mut tokens, &shared_at_module)?;
                image.kernels.push(kernel);
            }
            ".func" => skip_function(&mut tokens)?,
            ".global" | ".const" => {
                if let Some(variable) = declaration(&mut tokens) {
                    if token == ".const" {
                        image.constants += variable.bytes;
                    }
                    image.globals.push(GlobalInfo { name: variable.name.to_owned(), bytes: variable.bytes });
                }
            }
            ".extern" => {
                // Dynamic shared memory, or a variable or function of another module: no size here.
                tokens.skip_past(";");
            }
            ".shared" => {
                if let Some(variable) = declaration(&mut tokens) {
                    shared_at_module.insert(variable.name, u32::try_from(variable.bytes).unwrap_or(u32::MAX));
                }
            }
            _ => {}
        }
    }
    if version && target { Ok(image) } else { Err(ImageError::BadPtx) }
}

fn tenths(text: &str) -> u32 {
    let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
    major.parse::<u32>().unwrap_or(0) * 10 + minor.parse::<u32>().unwrap_or(0)
}

/// Registers of a thread, guessed from the virtual registers that the text declares: a quarter of
/// them, in words of 32 bits, plus 8, rounded up to the allocation unit of 8, within 16..=255 and
/// within what the largest block can have: an estimate must not make a launch fail that a GPU makes.
pub fn estimate_registers(words: u32, max_threads: Option<u32>) -> u32 {
    const LARGEST_BLOCK: u32 = 1024;
    let threads = max_threads.filter(|threads| *threads > 0).unwrap_or(LARGEST_BLOCK);
    (8 + words / 4).next_multiple_of(8).clamp(16, 255).min(65536 / threads.max(257)).max(16)
}

struct Variable<'a> {
    name: &'a str,
    bytes: u64,
}

fn type_bytes(token: &str) -> Option<u64> {
    Some(match token {
        ".b8" | ".u8" | ".s8" | ".pred" | ".e4m3" | ".e5m2" => 1,
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => 2,
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" | ".tf32" => 4,
        ".b64" | ".u64" | ".s64" | ".f64" | ".texref" | ".samplerref" | ".surfref" => 8,
        ".b128" => 16,
        _ => return None,
    })
}

/// `[.align N] [.vN] .type name[dims] [= ...];` after the state space. `None` for what is no
/// variable (a list of registers, say).
fn declaration<'a>(tokens: &mut Tokens<'a>) -> Option<Variable<'a>> {
    let found = declarator(tokens);
    tokens.skip_past(";");
    found
}

fn declarator<'a>(tokens: &mut Tokens<'a>) -> Option<Variable<'a>> {
    let (mut unit, mut vector) = (0, 1);
    loop {
        let token = tokens.peek()?;
        match token {
            ";" | "," | ")" | "=" => return None,
            ".align" => {
                tokens.next();
            }
            ".attribute" => {
                tokens.skip_past(")");
                continue;
            }
            ".v2" => vector = 2,
            ".v4" => vector = 4,
            ".v8" => vector = 8,
            _ if token.starts_with('.') => unit = type_bytes(token).unwrap_or(unit),
            _ if token.starts_with(|c: char| c.is_ascii_digit()) => {}
            _ => break,
        }
        tokens.next();
    }
    let name = tokens.next()?;
    let mut count: u64 = 1;
    while tokens.peek() == Some("[") {
        tokens.next();
        if let Some(size) = tokens.peek().and_then(number) {
            count = count.saturating_mul(size);
            tokens.next();
        }
        tokens.skip_past("]");
    }
    Some(Variable { name, bytes: unit * vector * count })
}

fn number(token: &str) -> Option<u64> {
    if let Some(hex) = token.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    token.trim_end_matches('U').parse().ok()
}

fn entry<'a>(
    tokens: &mut Tokens<'a>,
    shared_at_module: &HashMap<&'a str, u32>,
) -> Result<KernelInfo, ImageError> {
    let name = tokens.next().ok_or(ImageError::BadPtx)?;
    let mut kernel = KernelInfo { name: name.to_owned(), params: Some(Vec::new()), ..KernelInfo::default() };
    if tokens.peek() == Some("(") {
        tokens.next();
        kernel.params = Some(parameters(tokens)?);
    }
    let mut stated_registers = None;
    // Directives up to the body; a prototype ends with a semicolon instead.
    loop {
        match tokens.next().ok_or(ImageError::BadPtx)? {
            "{" => break,
            ";" => return Ok(kernel),
            ".maxntid" => {
                let shape = triple(tokens);
                kernel.max_threads = Some(shape.iter().product());
            }
            ".reqntid" => {
                let shape = triple(tokens);
                kernel.required_block = Some(shape);
                kernel.max_threads = Some(shape.iter().product());
            }
            ".maxnreg" => {
                stated_registers = tokens.next().and_then(number).and_then(|n| u32::try_from(n).ok())
            }
            _ => {}
        }
    }
    let mut used_shared: Vec<&str> = Vec::new();
    let mut words = 0;
    let mut depth = 1;
    while depth > 0 {
        let token = tokens.next().ok_or(ImageError::BadPtx)?;
        match token {
            "{" => depth += 1,
            "}" => depth -= 1,
            ".reg" => words += register_words(tokens),
            ".shared" => {
                if let Some(variable) = declaration(tokens) {
                    kernel.shared =
                        kernel.shared.saturating_add(u32::try_from(variable.bytes).unwrap_or(u32::MAX));
                }
            }
            ".local" => {
                if let Some(variable) = declaration(tokens) {
                    kernel.local =
                        kernel.local.saturating_add(u32::try_from(variable.bytes).unwrap_or(u32::MAX));
                }
            }
            _ => {
                if let Some((name, bytes)) = shared_at_module.get_key_value(token)
                    && !used_shared.contains(name)
                {
                    used_shared.push(name);
                    kernel.shared = kernel.shared.saturating_add(*bytes);
                }
            }
        }
    }
    let guess = estimate_registers(words, kernel.max_threads);
    kernel.registers = stated_registers.map_or(guess, |most| guess.min(most));
    Ok(kernel)
}

/// Up to three numbers with commas between them; absent ones are 1.
fn triple(tokens: &mut Tokens<'_>) -> [u32; 3] {
    let mut shape = [1; 3];
    for place in &mut shape {
        let Some(value) = tokens.peek().and_then(number) else { break };
        *place = u32::try_from(value).unwrap_or(u32::MAX);
        tokens.next();
        if tokens.peek() != Some(",") {
            break;
        }
        tokens.next();
    }
    shape
}

/// `.reg .b32 %r<17>;` or `.reg .b64 %SP, %x;`: words of 32 bits.
fn register_words(tokens: &mut Tokens<'_>) -> u32 {
    let (mut unit, mut words) = (1, 0);
    while let Some(token) = tokens.next() {
        match token {
            ";" => break,
            "<" => {
                // The name in front was counted as one register already.
                let count = tokens.next().and_then(number).unwrap_or(1);
                words += unit * u32::try_from(count.saturating_sub(1)).unwrap_or(0).min(1 << 16);
            }
            ".pred" => unit = 0,
            _ if token.starts_with('.') => {
                unit = type_bytes(token).map_or(unit, |bytes| u32::try_from(bytes.div_ceil(4)).unwrap_or(1));
            }
            _ if token.starts_with('%') => words += unit,
            _ => {}
        }
    }
    words
}

/// Parameters up to the closing parenthesis: each lies at the next multiple of its alignment, which
/// is what `.align` says or the size of its type.
fn parameters(tokens: &mut Tokens<'_>) -> Result<Vec<(usize, usize)>, ImageError> {
    let mut found = Vec::new();
    let mut end = 0_usize;
    loop {
        match tokens.next().ok_or(ImageError::BadPtx)? {
            ")" => return Ok(found),
            ".param" => {
                let (mut align, mut unit, mut count) = (0, 1_usize, 1_usize);
                loop {
                    match tokens.peek().ok_or(ImageError::BadPtx)? {
                        "," | ")" => break,
                        ".align" => {
                            tokens.next();
                            let value = tokens.next().and_then(number).ok_or(ImageError::BadPtx)?;
                            // `.ptr .align N` speaks of what is pointed to and comes after the type.
                            if align == 0 {
                                align = usize::try_from(value).map_err(|_| ImageError::BadPtx)?;
                            }
                            continue;
                        }
                        "[" => {
                            tokens.next();
                            let value = tokens.next().and_then(number).ok_or(ImageError::BadPtx)?;
                            count = usize::try_from(value).map_err(|_| ImageError::BadPtx)?;
                            continue;
                        }
                        token => {
                            if let Some(bytes) = type_bytes(token) {
                                unit = usize::try_from(bytes).map_err(|_| ImageError::BadPtx)?;
                                align = align.max(unit);
                            }
                        }
                    }
                    tokens.next();
                }
                let offset = end.next_multiple_of(align.max(1));
                let size = unit.checked_mul(count).ok_or(ImageError::BadPtx)?;
                end = offset.checked_add(size).ok_or(ImageError::BadPtx)?;
                found.push((offset, size));
            }
            _ => {}
        }
    }
}

fn skip_function(tokens: &mut Tokens<'_>) -> Result<(), ImageError> {
    loop {
        match tokens.next().ok_or(ImageError::BadPtx)? {
            ";" => return Ok(()),
            "{" => break,
            _ => {}
        }
    }
    let mut depth = 1;
    while depth > 0 {
        match tokens.next().ok_or(ImageError::BadPtx)? {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
    }
    Ok(())
}

/// Words, numbers and directives as one token each, everything else by the character; comments and
/// strings are left out.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn peek(&self) -> Option<&'a str> {
        Tokens { text: self.text, at: self.at }.next()
    }

    fn next(&mut self) -> Option<&'a str> {
        let bytes = self.text.as_bytes();
        loop {
            let byte = *bytes.get(self.at)?;
            let rest = &self.text[self.at..];
            if byte == 0 {
                return None;
            } else if byte.is_ascii_whitespace() {
                self.at += 1;
            } else if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                self.at += rest.find("*/").map_or(rest.len(), |end| end + 2);
            } else if byte == b'"' {
                self.at += rest[1..].find('"').map_or(rest.len(), |end| end + 2);
            } else {
                break;
            }
        }
        let rest = &self.text[self.at..];
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.');
        let length = match rest.find(|c| !is_word(c)).unwrap_or(rest.len()) {
            0 => rest.chars().next().map_or(1, char::len_utf8),
            n => n,
        };
        self.at += length;
        Some(&rest[..length])
    }

    fn skip_past(&mut self, end: &str) {
        while let Some(token) = self.next() {
            if token == end {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
// .entry in a comment is none
.version 9.5
.target sm_80, debug
.address_size 64
.global .align 4 .b8 table[256] = {1, 2, 3};
.const .align 4 .b8 cc[64];
.extern .shared .align 16 .b8 d[];
.shared .align 4 .b8 smem0[512];
.global .attribute(.managed) .align 4 .u32 flag;
.visible .func (.param .b32 ret) helper(.param .b64 a) { .reg .b32 %r<3>; { ret; } }
.visible .entry square(
	.param .u64 .ptr .global .align 16 square_param_0,
	.param .u32 square_param_1,
	.param .align 4 .b8 square_param_2[32],
	.param .u8 square_param_3,
	.param .f64 square_param_4
)
.maxntid 16, 16, 1
{
	.local .align 4 .b8 	__local_depot0[32];
	.reg .pred 	%p<2>;
	.reg .b32 	%r<33>;
	.reg .b64 	%rd<17>;
	.shared .align 4 .b8 demoted[512];
	mov.u32 %r1, smem0;
	mov.u32 %r2, smem0;
	{ .reg .b32 t; }
	ret;
}
.entry empty() .reqntid 32 { ret; }
"#;

    #[test]
    fn kernels_their_parameters_and_resources_are_found() {
        let image = parse(TEXT).expect("valid text");
        assert_eq!((image.arch, image.ptx_version), (80, 95));
        let names: Vec<_> = image.kernels.iter().map(|k| k.name.as_str()).collect();
        assert_eq!(names, ["square", "empty"]);
        let square = &image.kernels[0];
        assert_eq!(square.params.as_deref(), Some(&[(0, 8), (8, 4), (12, 32), (44, 1), (48, 8)][..]));
        assert_eq!((square.shared, square.local), (1024, 32));
        assert_eq!(square.max_threads, Some(256));
        assert_eq!(square.registers, 24);
        let empty = &image.kernels[1];
        assert_eq!(empty.required_block, Some([32, 1, 1]));
        assert_eq!(empty.params.as_deref(), Some(&[][..]));
    }

    #[test]
    fn module_variables_have_sizes() {
        let image = parse(TEXT).expect("valid text");
        let sizes: Vec<_> = image.globals.iter().map(|g| (g.name.as_str(), g.bytes)).collect();
        assert_eq!(sizes, [("table", 256), ("cc", 64), ("flag", 4)]);
        assert_eq!(image.constants, 64);
    }

    #[test]
    fn text_that_breaks_off_or_is_something_else_is_refused() {
        assert!(looks_like_ptx(TEXT.as_bytes()));
        assert!(!looks_like_ptx(b"\x7fELF"));
        assert!(!looks_like_ptx(b"hello .version"));
        let cut = &TEXT[..TEXT.find("smem0;").expect("there")];
        assert_eq!(parse(cut).err(), Some(ImageError::BadPtx));
        assert_eq!(parse(".version 8.0").err(), Some(ImageError::BadPtx));
    }

    #[test]
    fn a_stated_block_bounds_the_registers() {
        assert_eq!(estimate_registers(4000, None), 64, "a block of 1024 can be launched");
        assert_eq!(estimate_registers(4000, Some(256)), 255);
        assert_eq!(estimate_registers(4000, Some(1024)), 64);
        assert_eq!(estimate_registers(0, Some(1024)), 16);
    }
}
