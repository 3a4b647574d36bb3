//! A minimal writer of the protocol buffers wire format: varints, fixed64 and length-delimited
//! fields.

/// A message being written.
#[derive(Clone, Default, Debug)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, wire: u64) {
        self.varint(u64::from(field) << 3 | wire);
    }

    /// A number field: `uint64`, `uint32`, `bool` or an enum.
    pub(crate) fn number(mut self, field: u32, value: u64) -> Self {
        self.key(field, 0);
        self.varint(value);
        self
    }

    /// A `fixed64` field.
    pub(crate) fn fixed(mut self, field: u32, value: u64) -> Self {
        self.key(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A string field.
    pub(crate) fn text(mut self, field: u32, text: &str) -> Self {
        self.key(field, 2);
        self.varint(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// A message field.
    pub(crate) fn message(mut self, field: u32, message: &Self) -> Self {
        self.key(field, 2);
        self.varint(message.0.len() as u64);
        self.0.extend_from_slice(&message.0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_bytes_of_the_encoding_guide() {
        // The guide's own examples: field 1 = 150, field 2 = "testing", field 3 = { field 1 = 150
        // }.
        assert_eq!(Message::new().number(1, 150).bytes(), [0x08, 0x96, 0x01]);
        assert_eq!(
            Message::new().text(2, "testing").bytes(),
            [0x12, 7, b't', b'e', b's', b't', b'i', b'n', b'g']
        );
        let inner = Message::new().number(1, 150);
        assert_eq!(Message::new().message(3, &inner).bytes(), [0x1a, 3, 0x08, 0x96, 0x01]);
        assert_eq!(Message::new().fixed(1, 1).bytes(), [0x09, 1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
