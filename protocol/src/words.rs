//! Words of a command line that are no UTF-8, in strings that JSON can hold.
//!
//! A byte that is not a part of UTF-8 is written as a zero byte and two hexadecimal digits. No word that a program can be
//! given contains a zero byte, so each word has one such form, and text stays as it is.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use radrm_text::Untrusted;

/// A word as a string.
#[must_use]
pub fn encode(word: &OsStr) -> String {
    write_with(word.as_bytes(), '\0'.to_string().as_str())
}

fn write_with(bytes: &[u8], mark: &str) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("{mark}{byte:02x}")));
    }
    text
}

/// The word of a string; `None` if no program can be given that.
#[must_use]
pub fn decode(text: &str) -> Option<OsString> {
    let mut parts = text.split('\0');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        let byte = u8::from_str_radix(byte, 16).ok().filter(|byte| *byte != 0)?;
        bytes.push(byte);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    Some(OsString::from_vec(bytes))
}

/// Strings of [`encode`] for people, with spaces between them: `\xff` for a byte that is not a text.
#[must_use]
pub fn shown(words: &[Untrusted]) -> Untrusted {
    Untrusted::join(words, " ").raw().replace('\0', "\\x").into()
}

/// Paths by the same rule, for serde's `with`.
pub mod path {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        super::encode(path.as_os_str()).serialize(to)
    }

    /// # Errors
    /// The deserializer's, or no program could be given such a path.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        let text = String::deserialize(from)?;
        super::decode(&text).map(PathBuf::from).ok_or_else(|| Error::custom("a path contains a zero byte"))
    }
}

/// Optional ones.
pub mod some_path {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Text(#[serde(with = "super::path")] PathBuf);

    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        path.clone().map(Text).serialize(to)
    }

    /// # Errors
    /// The deserializer's, or no program could be given such a path.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<Text>::deserialize(from)?.map(|text| text.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_comes_back_and_text_stays_as_it_is() {
        for word in [
            &b"plain"[..],
            b"",
            "\u{e9}\u{1f600}".as_bytes(),
            b"a\xffb",
            b"\xff\xfe",
            b"\xe2\x82",
            b"\xc3(ff",
        ] {
            let text = encode(OsStr::from_bytes(word));
            assert_eq!(decode(&text).unwrap().as_bytes(), word, "{text:?}");
            assert_eq!(text.contains('\0'), std::str::from_utf8(word).is_err());
        }
        assert_eq!(encode(OsStr::new("text")), "text");
        let words = [encode(OsStr::from_bytes(b"a\xffb")), "c".to_owned()].map(Untrusted::from);
        assert_eq!(shown(&words), "a\\xffb c");
        for wrong in ["\0", "a\0", "\0f", "\x0000", "\0zz", "\0\0ff", "\0+f"] {
            assert_eq!(decode(wrong), None, "{wrong:?}");
        }
    }
}
