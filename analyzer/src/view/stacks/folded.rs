//! The folded form: a stack and its bytes on each line, as `flamegraph.pl`, inferno and speedscope read it.

use super::{names, prefix};
use crate::model::stacks::Flame;

/// `frame;frame;... BYTES`, outermost first.
pub fn folded(flames: &[Flame]) -> String {
    let mut out = String::new();
    for flame in flames {
        let prefix = prefix(flames, flame);
        for stack in &flame.stacks {
            let frames: Vec<String> = names(&prefix, stack).iter().map(|name| plain(name)).collect();
            out.push_str(&format!("{} {}\n", frames.join(";"), stack.bytes.0));
        }
    }
    out
}

/// A name that ends neither a frame nor a line.
fn plain(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c == ';' {
                ':'
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::flame;
    use super::*;

    #[test]
    fn a_line_is_a_stack_whatever_its_names_hold() {
        assert_eq!(folded(&[flame(7, 0)]), "main (a.cpp:3);a:b c (a.cpp:5) 700\nmain (a.cpp:4) 1\n");
        assert_eq!(folded(&[]), "");
    }
}
