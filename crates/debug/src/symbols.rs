//! Names and source lines of a module's functions, for people: demangled names, and lines from the
//! DWARF sections where a module has them.
//!
//! Contract: the bytes are untrusted; what cannot be read has no line. Nothing here reaches a run.
//! Elsewhere: names of coroutines (`names`).

use addr2line::Context;
use addr2line::gimli::{Dwarf, EndianSlice, Error, LittleEndian, SectionId};

/// The bytes of a section of a module, until it is dropped.
type Section<'a> = EndianSlice<'a, LittleEndian>;

/// The source lines of a module.
pub struct Lines<'a> {
    /// Where the contents of its code section start: DWARF counts from there.
    code: u32,
    context: Context<Section<'a>>,
}

impl<'a> Lines<'a> {
    /// The lines in the DWARF sections of a binary module; `None` if it has none.
    #[must_use]
    pub fn read(module: &'a [u8]) -> Option<Self> {
        let sections = Sections::read(module)?;
        let code = sections.code?;
        sections.find(".debug_line")?;
        let load = |id: SectionId| {
            let bytes = sections.find(id.name()).unwrap_or_default();
            Ok::<_, Error>(EndianSlice::new(bytes, LittleEndian))
        };
        let context = Context::from_dwarf(Dwarf::load(load).ok()?).ok()?;
        Some(Self { code, context })
    }

    /// The source line of an instruction, by its byte offset in the module: `file:line:column`.
    #[must_use]
    pub fn line(&self, offset: u32) -> Option<String> {
        let address = u64::from(offset.checked_sub(self.code)?);
        let found = self.context.find_location(address).ok()??;
        let (file, line) = (found.file?, found.line?);
        Some(match found.column {
            Some(column) if column > 0 => format!("{file}:{line}:{column}"),
            _ => format!("{file}:{line}"),
        })
    }
}

/// The sections of a module that symbols are in.
struct Sections<'a> {
    code: Option<u32>,
    custom: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Sections<'a> {
    fn read(module: &'a [u8]) -> Option<Self> {
        let mut found = Self { code: None, custom: Vec::new() };
        let mut input = Input { bytes: module, at: 8 };
        while input.at < module.len() {
            let (id, length) = (*input.take(1)?.first()?, input.number()?);
            let start = input.at;
            let contents = input.take(length)?;
            match id {
                0 => {
                    let mut inner = Input { bytes: contents, at: 0 };
                    let length = inner.number()?;
                    let name = inner.take(length)?;
                    found.custom.push((name, &contents[inner.at..]));
                }
                10 => found.code = Some(u32::try_from(start).ok()?),
                _ => {}
            }
        }
        Some(found)
    }

    fn find(&self, name: &str) -> Option<&'a [u8]> {
        let mut custom = self.custom.iter();
        custom.find(|(known, _)| *known == name.as_bytes()).map(|(_, contents)| *contents)
    }
}

/// Bytes that are read from the front.
struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(taken)
    }

    /// An unsigned LEB128 number of at most 32 bits.
    fn number(&mut self) -> Option<usize> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(value).ok();
            }
        }
        None
    }
}

/// A function's name as its source has it: compilers mangle those of Rust.
pub(crate) fn demangled(name: &str) -> String {
    match rustc_demangle::try_demangle(name) {
        // Without the hash that tells versions of a crate apart.
        Ok(demangled) => format!("{demangled:#}"),
        Err(_) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module with the lines that the text format's own encoder writes.
    fn with_lines(text: &str) -> Vec<u8> {
        let mut parser = wat::Parser::new();
        parser.generate_dwarf(wat::GenerateDwarf::Lines);
        parser.parse_str(Some("guest.wat".as_ref()), text).expect("a module")
    }

    const TEXT: &str = "(module\n  (func $divide (param i32) (result i32)\n    i32.const 1\n    local.get 0\n    i32.div_u)\n  (func (export \"main\") (result i32)\n    (call $divide (i32.const 0))))\n";

    #[test]
    fn an_instruction_has_the_line_of_its_source() {
        let bytes = with_lines(TEXT);
        let lines = Lines::read(&bytes).expect("it has lines");
        let code = lines.code as usize;
        let divide = (code..bytes.len()).find(|&at| bytes[at] == 0x6e).expect("div_u");
        let found = lines.line(divide as u32).expect("a line");
        assert!(found.contains("guest.wat:5"), "{found}");
        assert_eq!(lines.line(0), None, "nothing before the code has a line");
    }

    #[test]
    fn modules_without_lines_or_cut_ones_have_none() {
        let bytes = with_lines(TEXT);
        for end in 0..bytes.len() {
            if let Some(lines) = Lines::read(&bytes[..end]) {
                (0..bytes.len() as u32).for_each(|offset| drop(lines.line(offset)));
            }
        }
        // Every byte changed: nothing panics.
        for at in 8..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x81;
            if let Some(lines) = Lines::read(&bytes) {
                (0..bytes.len() as u32).step_by(7).for_each(|offset| drop(lines.line(offset)));
            }
        }
        assert!(Lines::read(&wat::parse_str(TEXT).expect("a module")).is_none());
    }

    #[test]
    fn names_of_rust_are_demangled() {
        let cases = [
            ("_ZN4core9panicking5panic17h0123456789abcdefE", "core::panicking::panic"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("main", "main"),
            ("_Znot", "_Znot"),
        ];
        for (mangled, expected) in cases {
            assert_eq!(demangled(mangled), expected);
        }
    }
}
