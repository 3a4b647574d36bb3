//! A small Rust lexer for the house rules: identifiers, numbers, literals, comments and
//! punctuation, each with its line.
//!
//! Contract: every character of the source that is not white space belongs to exactly one token, in
//! order, and no input makes the lexer panic. Comments are tokens too, because rules read headers,
//! reasons and marks of unfinished work. Elsewhere: `source` groups tokens into items.

/// The kind of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An identifier or keyword; a raw identifier is stored without its `r#`.
    Identifier,
    /// A lifetime or loop label.
    Lifetime,
    /// A number without a fraction, an exponent or a float suffix.
    Integer,
    /// A floating-point literal.
    Float,
    /// A string, byte string, C string, character or byte literal.
    Literal,
    /// A comment that is not documentation.
    Comment,
    /// A `//!` or `/*! */` comment.
    InnerDoc,
    /// A `///` or `/** */` comment.
    OuterDoc,
    /// One character of punctuation.
    Punctuation,
}

impl Kind {
    /// Whether the compiler would ignore it.
    #[must_use]
    pub const fn is_comment(self) -> bool {
        matches!(self, Self::Comment | Self::InnerDoc | Self::OuterDoc)
    }
}

/// A token and its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its text; comments and literals keep their delimiters.
    pub text: &'a str,
    /// The line of its first character, from 1.
    pub line: usize,
    /// The line of its last character.
    pub last_line: usize,
}

impl Token<'_> {
    /// Whether it is this identifier or this punctuation (never a literal or a comment).
    #[must_use]
    pub fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Identifier | Kind::Punctuation) && self.text == text
    }
}

/// The tokens of a source text.
#[must_use]
pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { source, at: 0, line: 1, tokens: Vec::new() };
    while let Some(first) = lexer.peek(0) {
        if first.is_whitespace() {
            lexer.advance_over(first.len_utf8());
        } else {
            let (kind, length) = lexer.measure(first);
            lexer.push(kind, length);
        }
    }
    lexer.tokens
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: usize,
    tokens: Vec<Token<'a>>,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn peek(&self, characters: usize) -> Option<char> {
        self.rest().chars().nth(characters)
    }

    fn advance_over(&mut self, length: usize) {
        self.line += self.rest()[..length].matches('\n').count();
        self.at += length;
    }

    fn push(&mut self, kind: Kind, length: usize) {
        let line = self.line;
        let text = &self.rest()[..length];
        let text = text.strip_prefix("r#").filter(|_| kind == Kind::Identifier).unwrap_or(text);
        self.advance_over(length);
        self.tokens.push(Token { kind, text, line, last_line: self.line });
    }

    /// The kind and length in bytes of the token that starts here with `first`.
    fn measure(&self, first: char) -> (Kind, usize) {
        let rest = self.rest();
        if rest.starts_with("//") {
            return (
                comment_kind(rest, "//!", "///", "////"),
                rest.find('\n').unwrap_or(rest.len()),
            );
        }
        if rest.starts_with("/*") {
            return (comment_kind(rest, "/*!", "/**", "/***"), block_comment(rest));
        }
        if let Some(length) = string(rest) {
            return (Kind::Literal, length);
        }
        if first == '\'' {
            return quote(rest);
        }
        if first.is_ascii_digit() {
            return number(rest, self.tokens.last().is_some_and(|token| token.is(".")));
        }
        if begins_word(first) {
            let is_raw = rest.strip_prefix("r#").is_some_and(|tail| tail.starts_with(begins_word));
            let skip = if is_raw { 2 } else { 0 };
            return (Kind::Identifier, skip + word(&rest[skip..]));
        }
        (Kind::Punctuation, first.len_utf8())
    }
}

fn begins_word(character: char) -> bool {
    character == '_' || character.is_alphabetic()
}

/// Length of the run of word characters at the start of `text`.
fn word(text: &str) -> usize {
    text.find(|character: char| !(character == '_' || character.is_alphanumeric()))
        .unwrap_or(text.len())
}

fn comment_kind(rest: &str, inner: &str, outer: &str, plain: &str) -> Kind {
    if rest.starts_with(inner) {
        Kind::InnerDoc
    } else if rest.starts_with(outer)
        && !rest.starts_with(plain)
        && rest != "/**/"
        && !rest.starts_with("/**/")
    {
        Kind::OuterDoc
    } else {
        Kind::Comment
    }
}

/// Length of the block comment at the start of `rest`, including nested ones; an unclosed one
/// extends to the end.
fn block_comment(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut depth, mut at) = (0usize, 0usize);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Length of the string literal at the start of `rest`, with any prefix, or `None` if there is
/// none.
fn string(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r", "b", "c"]
        .into_iter()
        .find(|prefix| rest.starts_with(prefix))
        .unwrap_or("");
    let body = &rest[prefix.len()..];
    if prefix == "b" && body.starts_with('\'') {
        let (kind, length) = quote(body);
        return (kind == Kind::Literal).then_some(1 + length);
    }
    if !prefix.ends_with('r') {
        return body.starts_with('"').then(|| prefix.len() + quoted(body, '"'));
    }
    let hashes = body.find(|character| character != '#').unwrap_or(body.len());
    if !body[hashes..].starts_with('"') {
        return None;
    }
    let close = format!("\"{}", &body[..hashes]);
    let inside = &body[hashes + 1..];
    let end = inside.find(&close).map_or(inside.len(), |found| found + close.len());
    Some(prefix.len() + hashes + 1 + end)
}

/// Length of a literal that starts with `delimiter` and ends at the next one that is not escaped.
fn quoted(text: &str, delimiter: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if character == '\\' {
            escaped = true;
        } else if character == delimiter {
            return at + 1;
        }
    }
    text.len()
}

/// A character literal or a lifetime: `'x'` closes after one character, `'x` does not.
fn quote(rest: &str) -> (Kind, usize) {
    let mut characters = rest.chars().skip(1);
    match (characters.next(), characters.next()) {
        (Some('\\'), _) => (Kind::Literal, quoted(rest, '\'')),
        (Some(character), Some('\'')) => (Kind::Literal, 2 + character.len_utf8()),
        (Some(character), _) if begins_word(character) => (Kind::Lifetime, 1 + word(&rest[1..])),
        _ => (Kind::Punctuation, 1),
    }
}

/// A number. After a `.` it is a tuple index, so `pair.0.1` contains no float.
fn number(rest: &str, is_index: bool) -> (Kind, usize) {
    if is_index {
        return (
            Kind::Integer,
            rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len()),
        );
    }
    if ["0x", "0o", "0b"].iter().any(|radix| rest.starts_with(radix)) {
        return (Kind::Integer, word(rest));
    }
    let digits = |text: &str| {
        text.find(|character: char| !(character.is_ascii_digit() || character == '_'))
            .unwrap_or(text.len())
    };
    let mut length = digits(rest);
    let mut kind = Kind::Integer;
    let after_point = rest[length..].strip_prefix('.').map(|tail| tail.chars().next());
    if let Some(next) = after_point
        && !next.is_some_and(|character| character == '.' || begins_word(character))
    {
        kind = Kind::Float;
        length += 1;
        length += digits(&rest[length..]);
    }
    let exponent = &rest[length..];
    if exponent.starts_with(['e', 'E']) {
        let sign = usize::from(exponent[1..].starts_with(['+', '-']));
        if exponent[1 + sign..].starts_with(|character: char| character.is_ascii_digit()) {
            kind = Kind::Float;
            length += 1 + sign;
            length += digits(&rest[length..]);
        }
    }
    let suffix = &rest[length..][..word(&rest[length..])];
    if matches!(suffix, "f16" | "f32" | "f64" | "f128") {
        kind = Kind::Float;
    }
    (kind, length + suffix.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds and texts of a source, one token a line.
    fn shown(source: &str) -> Vec<(Kind, &str)> {
        tokens(source).into_iter().map(|token| (token.kind, token.text)).collect()
    }

    fn kinds(source: &str) -> Vec<Kind> {
        tokens(source).into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn floats_are_distinguished_from_integers() {
        for source in ["1.0", "1.", "1e9", "1E-9", "2f32", "1_0.5_0f64", "1.5e+3"] {
            assert_eq!(shown(source), [(Kind::Float, source)], "{source}");
        }
        for source in ["1", "1_000u64", "0x1f32", "0xE5", "0b1_0", "7usize"] {
            assert_eq!(shown(source), [(Kind::Integer, source)], "{source}");
        }
        for source in ["pair.0.1", "1..2", "1.max(2)", "[0..=9]", "x.0 .1"] {
            assert!(!kinds(source).contains(&Kind::Float), "{source}: {:?}", shown(source));
        }
    }

    #[test]
    fn text_inside_literals_and_comments_is_not_code() {
        let source = r####"let s = "HashMap \" f64"; let r = r#"1.0 "quoted" "#; let b = b"x"; let c = c"y"; /* f64 /* nested */ 1.0 */ // f32"####;
        let words: Vec<_> = tokens(source)
            .into_iter()
            .filter(|token| token.kind == Kind::Identifier)
            .map(|token| token.text)
            .collect();
        assert_eq!(words, ["let", "s", "let", "r", "let", "b", "let", "c"]);
        assert!(!kinds(source).contains(&Kind::Float));
    }

    #[test]
    fn quotes_are_characters_or_lifetimes() {
        assert_eq!(kinds(r"'a' '\'' '\\' b'x' '}' '\u{1F600}'"), [Kind::Literal; 6]);
        assert_eq!(
            shown("&'a str"),
            [(Kind::Punctuation, "&"), (Kind::Lifetime, "'a"), (Kind::Identifier, "str")]
        );
        assert_eq!(shown("'static"), [(Kind::Lifetime, "'static")]);
        assert_eq!(shown("r#type"), [(Kind::Identifier, "type")]);
    }

    #[test]
    fn kinds_of_comments_are_recognised() {
        assert_eq!(
            kinds("//! a\n/// b\n// c\n//// d\n"),
            [Kind::InnerDoc, Kind::OuterDoc, Kind::Comment, Kind::Comment]
        );
        assert_eq!(
            kinds("/*! a */ /** b */ /* c */ /**/"),
            [Kind::InnerDoc, Kind::OuterDoc, Kind::Comment, Kind::Comment]
        );
    }

    #[test]
    fn lines_are_counted_through_literals() {
        let lexed = tokens("\"a\nb\"\nname");
        assert_eq!((lexed[0].line, lexed[0].last_line, lexed[1].line), (1, 2, 3));
    }

    /// Every prefix of a text with all difficult tokens lexes without a panic and loses no
    /// character.
    #[test]
    fn no_input_is_lost_or_panics() {
        let source = "//! é\nfn f<'a>(x: &'a str) -> f64 { r##\"\"# \"##; b'\\''; '\\u{41}'; 1.5e-3f64 + 0x_ff; /* /* */ */ \"\\\\\" r# 1e 'é' ' }\n";
        for end in (0..=source.len()).filter(|end| source.is_char_boundary(*end)) {
            let text = &source[..end];
            let solid =
                |text: &str| text.chars().filter(|character| !character.is_whitespace()).count();
            let kept: usize = tokens(text).iter().map(|token| solid(token.text)).sum();
            assert_eq!(kept, solid(text), "{text}");
        }
    }
}
