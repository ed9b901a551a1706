//! Description of a batch: a tree of values, as bytes that follow its data.
//!
//! Little-endian throughout. A description is [`MAGIC`], then one node. A node is a tag of one byte and what it needs:
//!
//! | tag | is | followed by |
//! |---|---|---|
//! | 0, 1, 2 | none, false, true | – |
//! | 3 | integer | 8 bytes |
//! | 4 | long integer, two's complement | length (4 bytes), bytes |
//! | 5 | float | 8 bytes |
//! | 6 | complex number | 16 bytes |
//! | 7, 8 | text (UTF-8), bytes | length (4 bytes), bytes |
//! | 9, 10 | list, tuple | count (4 bytes), nodes |
//! | 11 | dictionary | count (4 bytes), a key node and a value node each |
//! | 12 | record | 0 for a named tuple or 1 for a data class, its name, count (2 bytes), names of fields, nodes |
//! | 13 | array | see [`Array`] |
//! | 14 | dictionary of a class of its own | the class's name, count (4 bytes), a key node and a value node each |
//!
//! A name is a length (2 bytes) and UTF-8 that begins with a letter or `_` and goes on with these and digits. No name
//! leads to code: a record says which fields it has, and the consumer chooses what to make of it.
//!
//! [`check`] accepts exactly the descriptions whose every length, count, offset and extent is within bounds, so that a
//! reader after it needs no checks of its own.

/// First bytes of a description, with the version of the format.
pub const MAGIC: [u8; 4] = *b"RSD1";

/// Levels of nodes inside nodes.
pub const MAX_DEPTH: usize = 64;

/// Nodes of a description.
pub const MAX_NODES: usize = 1 << 20;

/// Bytes of a description.
pub const MAX_BYTES: usize = 64 << 20;

/// Dimensions of an array.
pub const MAX_DIMENSIONS: usize = 32;

/// Each array begins at a multiple of this many bytes.
pub const ALIGNMENT: u64 = 64;

/// Reason that a description is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadDescription {
    /// Other bytes than [`MAGIC`] in front.
    #[error("it has another format or version")]
    Magic,
    /// It ends inside a node.
    #[error("it ends too early")]
    Truncated,
    /// Bytes after the node.
    #[error("bytes follow its end")]
    Trailing,
    /// It is longer than [`MAX_BYTES`].
    #[error("it is too long")]
    TooLong,
    /// More than [`MAX_DEPTH`] levels.
    #[error("it is nested too deeply")]
    TooDeep,
    /// More than [`MAX_NODES`] nodes.
    #[error("it has too many values")]
    TooMany,
    /// A tag that this version does not know.
    #[error("unknown tag {0}")]
    Tag(u8),
    /// Text that is not UTF-8.
    #[error("a text is not UTF-8")]
    Text,
    /// A name that is not an identifier.
    #[error("a name is not an identifier")]
    Name,
    /// A value that cannot be a key of a dictionary.
    #[error("a key of a dictionary is not a scalar, text, bytes or a tuple of these")]
    Key,
    /// An element type that this version does not know, or with another size.
    #[error("unknown element type {0}")]
    Element(u8),
    /// An array that is not inside the batch's data.
    #[error("an array lies outside of the batch's data")]
    Extent,
}

/// An array's node, after its tag: framework (0 numpy, 1 PyTorch, 2 DLPack; 3 more if it lies on the GPU), element type, bytes of an element (4),
/// number of dimensions, offset in the data, of the host or of the GPU (8), then all lengths and all strides in elements (8 bytes each).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Array {
    /// Framework that made it; the consumer's array is of the same one.
    pub framework: u8,
    /// True if it lies on the GPU.
    pub on_gpu: bool,
    /// Type of its elements: see [`element_size`].
    pub element: u8,
    /// Bytes of an element.
    pub size: u32,
    /// Offset in the batch's data, bytes.
    pub offset: u64,
    /// Lengths of its dimensions.
    pub shape: Vec<u64>,
    /// Elements between neighbours in each dimension.
    pub strides: Vec<u64>,
}

/// Bytes of an element of this type; `Some(None)` if each array says it itself.
///
/// 1 bool; 2 to 5 signed and 6 to 9 unsigned integers of 1, 2, 4, 8 bytes; 10 to 12 floats of 2, 4, 8 bytes; 13 bfloat16;
/// 14, 15, 16 complex numbers of 8, 16, 4 bytes; 17 to 21 the five floats of 1 byte; 32 bytes and 33 UCS-4 text of numpy;
/// 34 to 47 moments and 48 to 61 durations in numpy's units.
pub fn element_size(element: u8) -> Option<Option<u32>> {
    let size = match element {
        1 | 2 | 6 | 17..=21 => 1,
        3 | 7 | 10 | 13 => 2,
        4 | 8 | 11 | 16 => 4,
        5 | 9 | 12 | 14 | 34..=61 => 8,
        15 => 16,
        32 | 33 => return Some(None),
        _ => return None,
    };
    Some(Some(size))
}

/// Accepts a description whose arrays lie within `data` bytes, those on the GPU within `gpu` bytes there, and passes each of
/// them to `found`.
///
/// # Errors
/// [`BadDescription`]: nothing of it may be used.
pub fn check(
    bytes: &[u8],
    (data, gpu): (u64, u64),
    mut found: impl FnMut(&Array),
) -> Result<(), BadDescription> {
    if bytes.len() > MAX_BYTES {
        return Err(BadDescription::TooLong);
    }
    let rest = bytes.strip_prefix(&MAGIC).ok_or(BadDescription::Magic)?;
    let mut reader = Reader { rest, nodes: 0, data, gpu, found: &mut found };
    reader.node(0, false)?;
    if reader.rest.is_empty() { Ok(()) } else { Err(BadDescription::Trailing) }
}

struct Reader<'a> {
    rest: &'a [u8],
    nodes: usize,
    data: u64,
    gpu: u64,
    found: &'a mut dyn FnMut(&Array),
}

impl Reader<'_> {
    fn bytes(&mut self, count: usize) -> Result<&[u8], BadDescription> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(BadDescription::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], BadDescription> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(BadDescription::Truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn byte(&mut self) -> Result<u8, BadDescription> {
        Ok(u8::from_le_bytes(self.fixed()?))
    }

    fn short(&mut self) -> Result<usize, BadDescription> {
        Ok(u16::from_le_bytes(self.fixed()?).into())
    }

    fn word(&mut self) -> Result<u32, BadDescription> {
        Ok(u32::from_le_bytes(self.fixed()?))
    }

    fn long(&mut self) -> Result<u64, BadDescription> {
        Ok(u64::from_le_bytes(self.fixed()?))
    }

    fn count(&mut self) -> Result<usize, BadDescription> {
        usize::try_from(self.word()?).map_err(|_| BadDescription::Truncated)
    }

    fn name(&mut self) -> Result<(), BadDescription> {
        let length = self.short()?;
        let text = std::str::from_utf8(self.bytes(length)?).map_err(|_| BadDescription::Text)?;
        let starts = text.starts_with(|first: char| first.is_alphabetic() || first == '_');
        if starts && text.chars().all(|other| other.is_alphanumeric() || other == '_') {
            Ok(())
        } else {
            Err(BadDescription::Name)
        }
    }

    fn node(&mut self, depth: usize, key: bool) -> Result<(), BadDescription> {
        if depth >= MAX_DEPTH {
            return Err(BadDescription::TooDeep);
        }
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(BadDescription::TooMany);
        }
        let tag = self.byte()?;
        match tag {
            0..=2 => {}
            3 | 5 => _ = self.fixed::<8>()?,
            6 => _ = self.fixed::<16>()?,
            4 | 8 => {
                let length = self.count()?;
                self.bytes(length)?;
            }
            7 => {
                let length = self.count()?;
                std::str::from_utf8(self.bytes(length)?).map_err(|_| BadDescription::Text)?;
            }
            10 => {
                for _ in 0..self.count()? {
                    self.node(depth + 1, key)?;
                }
            }
            9..=14 if key => return Err(BadDescription::Key),
            9 => {
                for _ in 0..self.count()? {
                    self.node(depth + 1, false)?;
                }
            }
            11 => self.pairs(depth)?,
            14 => {
                self.name()?;
                self.pairs(depth)?;
            }
            12 => self.record(depth)?,
            13 => {
                let array = self.array()?;
                (self.found)(&array);
            }
            _ => return Err(BadDescription::Tag(tag)),
        }
        Ok(())
    }

    fn pairs(&mut self, depth: usize) -> Result<(), BadDescription> {
        for _ in 0..self.count()? {
            self.node(depth + 1, true)?;
            self.node(depth + 1, false)?;
        }
        Ok(())
    }

    fn record(&mut self, depth: usize) -> Result<(), BadDescription> {
        let kind = self.byte()?;
        if kind > 1 {
            return Err(BadDescription::Tag(kind));
        }
        self.name()?;
        let count = self.short()?;
        for _ in 0..count {
            self.name()?;
        }
        for _ in 0..count {
            self.node(depth + 1, false)?;
        }
        Ok(())
    }

    fn array(&mut self) -> Result<Array, BadDescription> {
        let (framework, element) = (self.byte()?, self.byte()?);
        if framework > 5 {
            return Err(BadDescription::Tag(framework));
        }
        let (on_gpu, framework) = (framework > 2, framework % 3);
        let size = self.word()?;
        let known = element_size(element).ok_or(BadDescription::Element(element))?;
        let sound = match known {
            Some(known) => size == known,
            // No framework has texts on a GPU.
            None if on_gpu => false,
            // numpy takes no elements without bytes here, and a letter has four.
            None => size > 0 && size <= 1 << 30 && (element != 33 || size % 4 == 0),
        };
        if !sound {
            return Err(BadDescription::Element(element));
        }
        let dimensions = usize::from(self.byte()?);
        if dimensions > MAX_DIMENSIONS {
            return Err(BadDescription::Extent);
        }
        let offset = self.long()?;
        let shape = (0..dimensions).map(|_| self.long()).collect::<Result<Vec<_>, _>>()?;
        let strides = (0..dimensions).map(|_| self.long()).collect::<Result<Vec<_>, _>>()?;
        let array = Array { framework, on_gpu, element, size, offset, shape, strides };
        let (bytes, end) = array.extent().ok_or(BadDescription::Extent)?;
        let within = if on_gpu { self.gpu } else { self.data };
        let inside = end <= within && bytes <= within;
        if inside && offset.is_multiple_of(ALIGNMENT) { Ok(array) } else { Err(BadDescription::Extent) }
    }
}

impl Array {
    /// Bytes of all elements, and the first byte after the array in the batch's data. None if the arithmetic overflows, or
    /// if a length or stride is more than what the frameworks' signed sizes hold.
    pub fn extent(&self) -> Option<(u64, u64)> {
        let size = u64::from(self.size);
        let (mut elements, mut last) = (1u64, 0u64);
        for (length, stride) in self.shape.iter().zip(&self.strides) {
            i64::try_from(*length).ok()?;
            i64::try_from(stride.checked_mul(size)?).ok()?;
            elements = elements.checked_mul(*length)?;
            last = last.checked_add(length.saturating_sub(1).checked_mul(*stride)?)?;
        }
        if elements == 0 {
            return Some((0, self.offset));
        }
        let end = last.checked_add(1)?.checked_mul(size)?.checked_add(self.offset)?;
        Some((elements.checked_mul(size)?, end))
    }
}

#[cfg(test)]
mod tests;
