//! Inputs of fuzz targets: whole files and messages, damaged in the places and ways that a fuzzer's bytes name.
//!
//! A fuzzer that knows nothing of a format rarely gets behind its first check. Damaging a whole gets there.

/// Numbers at which sizes, counts and offsets break.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_fff8,
    u64::MAX,
];

/// Words at which readers of text break.
const WORDS: [&str; 24] = [
    "\n",
    "\r\n",
    ",",
    ";",
    "|",
    "\"",
    "'",
    "\\",
    "{",
    "}",
    "[",
    "]",
    "=",
    ":",
    "#",
    "\0",
    "\u{202e}",
    "-1",
    "1e308",
    "nan",
    "inf",
    "18446744073709551616",
    "99999999999999999999999999",
    "\u{feff}",
];

/// Places near the beginning, where heads and sizes stand.
const HEAD: usize = 1024;

/// The bytes as they are, or one of the wholes as they damage it.
#[must_use]
pub fn input(wholes: &[Vec<u8>], bytes: &[u8]) -> Vec<u8> {
    let Some((which, rest)) = bytes.split_first() else { return Vec::new() };
    match wholes.get(usize::from(*which) % (wholes.len() + 1)) {
        Some(whole) => damaged(whole, rest),
        None => rest.to_vec(),
    }
}

/// As [`input`], as text.
#[must_use]
pub fn text(wholes: &[&str], bytes: &[u8]) -> String {
    let wholes: Vec<Vec<u8>> = wholes.iter().map(|whole| whole.as_bytes().to_vec()).collect();
    String::from_utf8_lossy(&input(&wholes, bytes)).into_owned()
}

/// A whole with up to seven places damaged.
#[must_use]
pub fn damaged(whole: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut made = whole.to_vec();
    let Some((times, bytes)) = bytes.split_first() else { return made };
    for [how, a, b, c, value, length] in bytes.as_chunks::<6>().0.iter().take(usize::from(times % 8)).copied()
    {
        let place = u32::from_le_bytes([a, b, c, 0]) as usize;
        // Half of them near the beginning.
        let span = if how & 0x80 == 0 { made.len().min(HEAD) } else { made.len() };
        let at = place % (span + 1);
        let until = (at + usize::from(length)).min(made.len());
        let edge = EDGES[usize::from(value) % EDGES.len()].to_le_bytes();
        match how % 8 {
            0 => over(&mut made, at, &[value]),
            1 => over(&mut made, at, &edge[..4]),
            2 => over(&mut made, at, &edge),
            3 => drop(made.drain(at..until)),
            4 => _ = made.splice(at..at, WORDS[usize::from(value) % WORDS.len()].bytes()),
            5 => {
                let again = made[at..until].repeat(1 + usize::from(value % 16));
                made.splice(at..at, again);
            }
            6 => made.truncate(at.max(made.len() / 2)),
            _ => made.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (value % 8)),
        }
    }
    made
}

fn over(made: &mut [u8], at: usize, bytes: &[u8]) {
    made.iter_mut().skip(at).zip(bytes).for_each(|(place, byte)| *place = *byte);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_is_damaged_in_the_named_places_only() {
        let whole = b"0123456789".to_vec();
        assert_eq!(damaged(&whole, b""), whole);
        assert_eq!(damaged(&whole, &[0, 0, 3, 0, 0, b'x', 0]), whole, "no time");
        assert_eq!(damaged(&whole, &[1, 0, 3, 0, 0, b'x', 0]), b"012x456789");
        assert_eq!(damaged(&whole, &[1, 3, 3, 0, 0, 0, 2]), b"01256789");
        assert_eq!(damaged(&whole, &[1, 4, 1, 0, 0, 2, 0]), b"0,123456789");
        assert_eq!(damaged(&whole, &[1, 5, 0, 0, 0, 1, 2]), b"01010123456789");
        assert_eq!(damaged(&whole, &[1, 6, 7, 0, 0, 0, 0]), b"0123456");
    }

    #[test]
    fn each_whole_and_the_bytes_themselves_are_inputs() {
        let wholes = [b"a".to_vec(), b"b".to_vec()];
        let made: Vec<Vec<u8>> = (0..3).map(|which| input(&wholes, &[which, 0])).collect();
        assert_eq!(made, [b"a".to_vec(), b"b".to_vec(), vec![0]]);
        assert_eq!(text(&["x"], &[1, 0xff]), "\u{fffd}");
    }
}
