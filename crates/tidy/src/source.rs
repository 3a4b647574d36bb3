//! A Rust file as tokens with just enough grouping for house rules: attributes, functions, and
//! which tokens are compiled for tests only.
//!
//! It is not a parser: it matches brackets and knows where an item ends. What it cannot see (code
//! made by macros elsewhere) it does not claim to see.

use std::ops::RangeInclusive;

use crate::token::{Kind, Token, tokens};

/// A lexed file.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// Its tokens, comments included.
    pub tokens: Vec<Token<'a>>,
    /// For each token whether it belongs to an item that exists in tests only.
    test: Vec<bool>,
}

/// An attribute: `#[...]` or `#![...]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attribute {
    /// Index of its `#`.
    pub start: usize,
    /// Index of the token after its `[`.
    pub inside: usize,
    /// Index of its `]`.
    pub end: usize,
    /// Whether it is about the enclosing item.
    pub inner: bool,
}

/// A function with a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a str,
    /// Index of its `fn`.
    pub index: usize,
    /// The line of its `fn`.
    pub line: usize,
    /// The line of its closing brace.
    pub last_line: usize,
}

impl<'a> Source<'a> {
    /// Lexes a text.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        let tokens = tokens(text);
        let mut source = Self { test: vec![false; tokens.len()], tokens };
        for attribute in source.attributes() {
            if source.is_test_attribute(attribute) {
                let (start, end) = if attribute.inner {
                    (0, source.tokens.len())
                } else {
                    (attribute.start, source.item_end(attribute.end + 1))
                };
                source.test[start..end].fill(true);
            }
        }
        source
    }

    /// The tokens that reach a user of the crate: no comments, nothing that exists in tests only.
    pub fn code(&self) -> impl Iterator<Item = (usize, &Token<'a>)> {
        self.tokens
            .iter()
            .enumerate()
            .filter(|(index, token)| !token.kind.is_comment() && !self.test[*index])
    }

    /// The comments, test code included.
    pub fn comments(&self) -> impl Iterator<Item = &Token<'a>> {
        self.tokens.iter().filter(|token| token.kind.is_comment())
    }

    /// The next token after `index` that is not a comment.
    #[must_use]
    pub fn after(&self, index: usize) -> Option<&Token<'a>> {
        self.tokens.get(index + 1..)?.iter().find(|token| !token.kind.is_comment())
    }

    /// Whether the word at `index` names a module or a macro: it stands beside `::`, before `!`, or
    /// in a `use` item.
    #[must_use]
    pub fn is_path_part(&self, index: usize) -> bool {
        let beside = |first: usize| self.is(first, ":") && self.is(first + 1, ":");
        let before = &self.tokens[..index];
        let item = before
            .iter()
            .rposition(|token| token.is(";") || token.is("}"))
            .map_or(before, |end| &before[end + 1..]);
        beside(index + 1)
            || (index >= 2 && beside(index - 2))
            || self.is(index + 1, "!")
            || item.iter().any(|token| token.is("use"))
    }

    /// Every attribute, in order.
    #[must_use]
    pub fn attributes(&self) -> Vec<Attribute> {
        let mut found = Vec::new();
        for (start, token) in self.tokens.iter().enumerate() {
            let inner = self.is(start + 1, "!");
            let open = start + 1 + usize::from(inner);
            if token.is("#") && self.is(open, "[") {
                found.push(Attribute { start, inside: open + 1, end: self.matching(open), inner });
            }
        }
        found
    }

    /// The tokens between an attribute's brackets.
    #[must_use]
    pub fn inside(&self, attribute: Attribute) -> &[Token<'a>] {
        &self.tokens[attribute.inside..attribute.end.max(attribute.inside)]
    }

    /// The lines that a person lays out, since rustfmt leaves them: the rows inside a macro call in
    /// braces, and items marked `#[rustfmt::skip]`.
    #[must_use]
    pub fn lines_by_hand(&self) -> Vec<RangeInclusive<usize>> {
        let last_line = |end: usize| self.tokens[end.min(self.tokens.len() - 1)].last_line;
        let mut found = Vec::new();
        for (index, token) in self.tokens.iter().enumerate() {
            if token.kind == Kind::Identifier && self.is(index + 1, "!") && self.is(index + 2, "{")
            {
                found.push(token.line..=last_line(self.matching(index + 2)));
            }
        }
        for attribute in self.attributes() {
            if self.inside(attribute).iter().any(|token| token.is("rustfmt")) {
                let end = self.item_end(attribute.end + 1) - 1;
                found.push(self.tokens[attribute.start].line..=last_line(end));
            }
        }
        found
    }

    /// The line of each struct of this name, and how many named fields it has.
    #[must_use]
    pub fn fields_of(&self, name: &str) -> Vec<(usize, usize)> {
        let code: Vec<&Token<'a>> = self.code().map(|(_, token)| token).collect();
        let mut found = Vec::new();
        for (at, pair) in code.windows(2).enumerate() {
            if !(pair[0].is("struct") && pair[1].is(name)) {
                continue;
            }
            let (mut depth, mut fields) = (0usize, 0);
            for (index, token) in code.iter().enumerate().skip(at + 2) {
                let single = |other: usize| !code[other].is(":");
                match token.text {
                    ";" if depth == 0 => break,
                    "{" | "(" | "[" => depth += 1,
                    "}" | ")" | "]" => {
                        depth -= 1;
                        if depth == 0 {
                            break;
                        }
                    }
                    ":" if depth == 1 && single(index - 1) && single(index + 1) => fields += 1,
                    _ => {}
                }
            }
            found.push((pair[0].line, fields));
        }
        found
    }

    /// Every function that has a body, nested ones included.
    #[must_use]
    pub fn functions(&self) -> Vec<Function<'a>> {
        let mut found = Vec::new();
        for (index, token) in self.tokens.iter().enumerate() {
            let Some(name) = self
                .tokens
                .get(index + 1)
                .filter(|name| token.is("fn") && (name.kind == Kind::Identifier || name.is("$")))
            else {
                continue;
            };
            if let Some(open) = self.body(index + 1) {
                let close = self.matching(open).min(self.tokens.len() - 1);
                found.push(Function {
                    name: name.text,
                    index,
                    line: token.line,
                    last_line: self.tokens[close].last_line,
                });
            }
        }
        found
    }

    /// The names of the modules that are declared for tests only and live in files of their own.
    #[must_use]
    pub fn test_modules(&self) -> Vec<&'a str> {
        let is_declaration = |index: usize| self.tokens[index].is("mod") && self.is(index + 2, ";");
        (0..self.tokens.len())
            .filter(|index| self.test[*index] && is_declaration(*index))
            .map(|index| self.tokens[index + 1].text)
            .collect()
    }

    /// The names of all modules that live in files of their own.
    #[must_use]
    pub fn file_modules(&self) -> Vec<&'a str> {
        (0..self.tokens.len())
            .filter(|index| self.tokens[*index].is("mod") && self.is(index + 2, ";"))
            .map(|index| self.tokens[index + 1].text)
            .collect()
    }

    fn is(&self, index: usize, text: &str) -> bool {
        self.tokens.get(index).is_some_and(|token| token.is(text))
    }

    /// `#[test]`, `#[cfg(test)]` and `#[cfg(all(test, ...))]`; `any` and `not` do not make test
    /// code.
    fn is_test_attribute(&self, attribute: Attribute) -> bool {
        let inside: Vec<&str> = self
            .inside(attribute)
            .iter()
            .filter(|token| !token.kind.is_comment())
            .map(|token| token.text)
            .collect();
        match inside.as_slice() {
            ["test"] | ["cfg", "(", "test", ")"] => true,
            ["cfg", "(", "all", "(", parts @ .., ")", ")"] => {
                parts.split(|part| *part == ",").any(|part| part == ["test"])
            }
            _ => false,
        }
    }

    /// Index of the bracket that closes the one at `open`, or the number of tokens when none does.
    fn matching(&self, open: usize) -> usize {
        let mut depth = 0usize;
        for (index, token) in self.tokens.iter().enumerate().skip(open) {
            if token.is("(") || token.is("[") || token.is("{") {
                depth += 1;
            } else if token.is(")") || token.is("]") || token.is("}") {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index;
                }
            }
        }
        self.tokens.len()
    }

    /// Index of the `{` of the body of the function whose name is at `name`, or `None` for a
    /// declaration without one.
    fn body(&self, name: usize) -> Option<usize> {
        let mut at = name;
        while at < self.tokens.len() {
            if self.is(at, ";") || self.is(at, "}") {
                return None;
            }
            if self.is(at, "{") && !self.is(at - 1, "<") {
                return Some(at);
            }
            at = if self.is(at, "(") || self.is(at, "[") || self.is(at, "{") {
                self.matching(at) + 1
            } else {
                at + 1
            };
        }
        None
    }

    /// Index just after the item (or field, or statement) that begins at or after `start`, further
    /// attributes included.
    fn item_end(&self, start: usize) -> usize {
        let mut at = start;
        while at < self.tokens.len() && (self.tokens[at].kind.is_comment() || self.is(at, "#")) {
            at = if self.is(at, "#") { self.matching(at + 1) + 1 } else { at + 1 };
        }
        if self.is(at, "pub") {
            at = if self.is(at + 1, "(") { self.matching(at + 1) + 1 } else { at + 1 };
        }
        const ITEMS: [&str; 15] = [
            "fn",
            "mod",
            "impl",
            "use",
            "struct",
            "enum",
            "union",
            "trait",
            "type",
            "const",
            "static",
            "extern",
            "unsafe",
            "async",
            "macro_rules",
        ];
        let is_item = ITEMS.iter().any(|word| self.is(at, word));
        while at < self.tokens.len() {
            if self.is(at, ";") || (self.is(at, ",") && !is_item) {
                return at + 1;
            }
            if self.is(at, "{") {
                return (self.matching(at) + 1).min(self.tokens.len());
            }
            if self.is(at, "}") || self.is(at, ")") || self.is(at, "]") {
                return at;
            }
            at = if self.is(at, "(") || self.is(at, "[") { self.matching(at) + 1 } else { at + 1 };
        }
        self.tokens.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        Source::new(text)
            .code()
            .filter(|(_, token)| token.kind == Kind::Identifier)
            .map(|(_, token)| token.text.to_owned())
            .collect()
    }

    #[test]
    fn test_items_are_left_out_and_nothing_else_is() {
        assert_eq!(
            words("fn a() {} #[cfg(test)] mod tests { fn b() {} } fn c() {}"),
            ["fn", "a", "fn", "c"]
        );
        assert_eq!(words("#[test] #[should_panic] fn a() {} fn b() {}"), ["fn", "b"]);
        assert_eq!(words("#[cfg(all(test, feature = \"x\"))] use a::b; use c;"), ["use", "c"]);
        assert_eq!(words("#[cfg(any(test, x))] use a;"), ["cfg", "any", "test", "x", "use", "a"]);
        assert_eq!(words("#[cfg(not(test))] use a;"), ["cfg", "not", "test", "use", "a"]);
        assert_eq!(words("struct A { #[cfg(test)] b: C, d: E }"), ["struct", "A", "d", "E"]);
        assert_eq!(words("#![cfg(test)] use a;"), Vec::<String>::new());
        assert_eq!(
            words("#[cfg(test)] /// doc\n #[derive(X)] pub(crate) struct S<A, B>(A, B); fn f() {}"),
            ["fn", "f"]
        );
    }

    #[test]
    fn functions_end_at_their_brace() {
        let source = Source::new(
            "trait T { fn a(&self); fn b(&self) {\n}\n} fn c<const N: usize>(x: [u8; N]) -> X<{ N }>\nwhere Y: Z,\n{\n fn d() {}\n}\n type F = fn(u8);",
        );
        let found: Vec<_> = source
            .functions()
            .iter()
            .map(|function| (function.name, function.line, function.last_line))
            .collect();
        assert_eq!(found, [("b", 1, 2), ("c", 3, 7), ("d", 6, 6)]);
    }

    #[test]
    fn unclosed_text_does_not_panic() {
        let text = "#![cfg(test)] #[cfg(all(test, x))] pub(crate) fn f<const N: usize>(x: [u8; 2]) { if x { mod m; } } struct S { #[test] a: (B, C), }";
        for end in 0..=text.len() {
            let source = Source::new(&text[..end]);
            let _ = (source.functions(), source.test_modules(), source.code().count());
        }
    }
}
