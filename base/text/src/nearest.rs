//! The known name that a user most likely meant.

/// Least similarity of a name that is suggested: 1 is equal, 0 has no character in common.
const MIN_SIMILARITY: f64 = 0.6;

/// The most similar of the known names, whatever their case; `None` if no name is similar.
#[must_use]
pub fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let name = name.to_lowercase();
    let scored = known
        .into_iter()
        .map(|one| (strsim::normalized_damerau_levenshtein(&name, &one.to_lowercase()), one));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(similarity, _)| *similarity >= MIN_SIMILARITY).map(|(_, one)| one)
}

/// `; did you mean NAME?` for a name that is not known, or nothing.
#[must_use]
pub fn did_you_mean<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    nearest(name, known).map(|one| format!("; did you mean {one}?")).unwrap_or_default()
}

/// The first line of a message of serde's. One about an unknown field or variant, which lists the known ones in backquotes,
/// gets the nearest of them as a question.
#[must_use]
pub fn explained(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let is_unknown = line.starts_with("unknown field `") || line.starts_with("unknown variant `");
    let mut quoted = line.split('`').skip(1).step_by(2);
    match quoted.next().filter(|_| is_unknown) {
        Some(name) => format!("{line}{}", did_you_mean(name, quoted)),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_found_and_a_strange_one_is_not() {
        let known = ["magm", "round-robin", "first-fit", "best-fit", "mem-limit", "mem-limit-max"];
        for (name, expected) in [
            ("MAGM", Some("magm")),
            ("magn", Some("magm")),
            ("roundrobin", Some("round-robin")),
            ("frist-fit", Some("first-fit")),
            ("mem_limit", Some("mem-limit")),
            ("fastest", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn an_unknown_key_of_a_file_gets_the_nearest_known_one() {
        let wrong = "unknown field `polcy`, expected one of `preset`, `policy`, `order`\nmore";
        assert_eq!(explained(wrong), format!("{}; did you mean policy?", wrong.lines().next().unwrap()));
        let variant = "unknown variant `MAGM`, expected one of `exclusive`, `magm`";
        assert_eq!(explained(variant), format!("{variant}; did you mean magm?"));
        for other in ["unknown field `zzz`, expected `policy`", "invalid type: string \"`a`\", expected `b`"]
        {
            assert_eq!(explained(other), other);
        }
    }
}
