//! Shell scripts that submit `.rad` files after pauses, as CARMA's traces are published.

use crate::units::Millis;

/// A script that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// `.rad` files in order, as the script names them, each with the sum of the pauses before it.
    pub files: Vec<(Millis, String)>,
    /// Number of commands that are neither a pause nor name a `.rad` file.
    pub others: usize,
}

/// Reads a script: `sleep` pauses, and each word that ends with `.rad` is a submission. Returns `None` if there is none.
#[must_use]
pub fn script(text: &str) -> Option<Script> {
    let mut script = Script::default();
    let mut now = Millis::ZERO;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        for command in line.split([';', '&']).map(str::trim).filter(|command| !command.is_empty()) {
            let mut words = command.split_whitespace();
            if words.next() == Some("sleep")
                && let Some(pause) = words.map(pause).sum::<Option<f64>>()
            {
                now = now.plus(Millis((pause * 1000.0).round() as u64));
                continue;
            }
            let named = |word: &&str| word.ends_with(".rad");
            let files = command.split_whitespace().map(|word| word.trim_matches(['"', '\''])).filter(named);
            let before = script.files.len();
            script.files.extend(files.map(|file| (now, file.to_owned())));
            script.others += usize::from(script.files.len() == before);
        }
    }
    (!script.files.is_empty()).then_some(script)
}

/// Seconds of a word of `sleep`.
fn pause(word: &str) -> Option<f64> {
    let (number, unit) = match word.char_indices().last()? {
        (at, 's') => (&word[..at], 1.0),
        (at, 'm') => (&word[..at], 60.0),
        (at, 'h') => (&word[..at], 3600.0),
        (at, 'd') => (&word[..at], 86_400.0),
        _ => (word, 1.0),
    };
    let number: f64 = number.parse().ok()?;
    (number.is_finite() && (0.0..1e9).contains(&number)).then_some(number * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_add_up_before_each_file() {
        let text = "#!/bin/bash\n# a trace\npython3 submit.py --task a.rad &\nsleep 73\nsubmit \"w/b.rad\"; sleep 1.5m 2s\n\
                    echo done\nsubmit c.rad d.rad\n";
        let found = script(text).unwrap();
        let files = [(0, "a.rad"), (73_000, "w/b.rad"), (165_000, "c.rad"), (165_000, "d.rad")];
        let files = files.map(|(at, file)| (Millis(at), file.to_owned())).to_vec();
        assert_eq!(found, Script { files, others: 1 });
    }

    #[test]
    fn a_text_without_a_file_is_no_script() {
        for text in ["", "sleep 5\n", "arrival_s,task,rad\n0,1,vgg\n", "sleep x.rad.txt"] {
            assert_eq!(script(text), None, "{text}");
        }
        assert_eq!(script("sleep never\nsubmit a.rad").map(|script| script.others), Some(1));
    }
}
