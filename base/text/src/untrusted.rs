//! A type for text that users choose, so that no program prints it as it is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{clean, fit};

/// Text that a user chose, or a sentence with such text in it. Its [`fmt::Display`] writes it [`clean`], so what is formatted
/// cannot act on the reader's terminal; it has no `Deref` and no `AsRef<str>` by which it could be printed otherwise.
///
/// In files and over a connection it stays what it is.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Untrusted(String);

impl Untrusted {
    /// The text as it is: to compare it, to name a file or a program to the kernel, and for data. Nothing for a screen.
    #[must_use]
    pub fn raw(&self) -> &str {
        &self.0
    }

    /// As [`Untrusted::raw`], without a copy.
    #[must_use]
    pub fn into_raw(self) -> String {
        self.0
    }

    /// Returns true if there is no text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text as [`fit`] cuts it to so many columns.
    #[must_use]
    pub fn fit(&self, columns: usize) -> String {
        fit(&self.0, columns)
    }

    /// Several texts as one, with this between them.
    #[must_use]
    pub fn join(texts: &[Self], between: &str) -> Self {
        let texts: Vec<&str> = texts.iter().map(Self::raw).collect();
        Self(texts.join(between))
    }
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&clean(&self.0))
    }
}

impl fmt::Debug for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*clean(&self.0), f)
    }
}

impl From<String> for Untrusted {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Untrusted {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl PartialEq<str> for Untrusted {
    fn eq(&self, text: &str) -> bool {
        self.0 == text
    }
}

impl PartialEq<&str> for Untrusted {
    fn eq(&self, text: &&str) -> bool {
        self.0 == *text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts that steer a terminal, and the beginning of what they do.
    const HOSTILE: [(&str, &str); 5] = [
        ("a\x1b[2Jb", "\x1b"),
        ("train\u{202e}gpj.exe", "\u{202e}"),
        ("a\r\nX-Header: 1", "\r\n"),
        ("a\u{9b}2Jb", "\u{9b}"),
        ("ro\u{200b}ot", "\u{200b}"),
    ];

    #[test]
    fn no_way_of_formatting_writes_text_as_it_is() {
        for (text, acts) in HOSTILE {
            let untrusted = Untrusted::from(text);
            let shown = [
                untrusted.to_string(),
                format!("{untrusted:>40}"),
                format!("{untrusted:.6}"),
                format!("{untrusted:?}"),
                format!("{untrusted:#?}"),
                format!("{:?}", Some(vec![untrusted.clone()])),
                untrusted.fit(40),
            ];
            assert!(shown.iter().all(|shown| !shown.contains(acts)), "{shown:?}");
            assert_eq!(untrusted.raw(), text);
        }
        assert_eq!(
            format!(
                "[{:<4}] [{:>4}] [{:.2}]",
                Untrusted::from("ab"),
                Untrusted::from("ab"),
                Untrusted::from("abc")
            ),
            "[ab  ] [  ab] [ab]"
        );
    }

    #[test]
    fn several_texts_are_one() {
        let texts = ["a\x1b", "b"].map(Untrusted::from);
        assert_eq!(Untrusted::join(&texts, " "), "a\x1b b");
        assert!(Untrusted::default().is_empty() && Untrusted::join(&[], " ").is_empty());
    }

    #[test]
    fn data_holds_text_as_it_is() {
        for (text, _) in HOSTILE {
            let json = serde_json::to_string(&Untrusted::from(text)).unwrap();
            assert_eq!(json, serde_json::to_string(text).unwrap());
            assert_eq!(serde_json::from_str::<Untrusted>(&json).unwrap(), text);
        }
    }
}
