//! The encoding of protocol buffers.

/// A message in the encoding of protocol buffers.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(super) fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Several numbers in one field.
    pub(super) fn numbers(&mut self, field: u32, values: &[u64]) {
        let mut packed = Self::default();
        for value in values {
            packed.varint(*value);
        }
        self.bytes(field, &packed.0);
    }

    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// Adds the fields of another message.
    pub(super) fn append(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
pub(super) mod tests {
    pub(in super::super) fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }

    /// The fields of a message: number, and a number or bytes.
    pub(in super::super) fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let value = varint(&mut bytes);
            let mut body = Vec::new();
            if tag & 7 == 2 {
                body = bytes[..value as usize].to_vec();
                bytes = &bytes[value as usize..];
            }
            fields.push((tag >> 3, value, body));
        }
        fields
    }
}
