//! Text as it may stand in a page.

/// Text as it may stand in SVG and HTML, also in an attribute's value.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

/// JSON as it may stand in a `script` element: no character in it can begin a tag or a comment.
pub(crate) fn json_in_script(json: &str) -> String {
    // Outside of strings JSON has none of the three.
    json.replace('<', r"\u003c").replace('>', r"\u003e").replace('&', r"\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("<a&\"'\x1b"), "&lt;a&amp;&quot;&#39;\u{fffd}");
    }

    #[test]
    fn json_cannot_leave_its_script() {
        let evil = r#"</script><!--<script>&"\"#;
        let json = serde_json::to_string(evil).unwrap();
        let safe = json_in_script(&json);
        assert!(!safe.contains(['<', '>', '&']), "{safe}");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), evil);
    }
}
