//! The guests' output and log on their way out (`--output`): unchanged, with the session's name
//! before each line, as JSON Lines, or in files of each session; and the head of each for the
//! object of `--json`.
//!
//! Elsewhere: when the bytes are written, and what a closed pipe means, is in `streams`.

use crate::arguments::OutputMode;
use crate::report::{OutputRow, SessionSummary};
use anstyle::{AnsiColor, Color, Style};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use wavelock_abi::SessionId;

/// The longest line that waits for its end under `prefix`, in bytes; a longer one is broken.
const LONGEST_LINE: usize = 64 << 10;
/// The widest column of names under `prefix`.
const WIDEST_NAME: usize = 24;
/// Kept of each stream of a session for `--json`, in bytes.
const HEAD_BYTES: usize = 64 << 10;
/// Kept of all streams together for `--json`, in bytes.
const ALL_HEADS_BYTES: usize = 16 << 20;

/// What a guest writes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stream {
    /// `output` and standard output: an observable.
    Output,
    /// `log` and standard error.
    Log,
}

impl Stream {
    const fn name(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Log => "log",
        }
    }
}

/// Formats the guests' output and holds it until it is written.
pub(super) struct GuestOutput {
    form: Form,
    /// By session; safe in a terminal and as the name of a file.
    names: Vec<String>,
    /// The last frame that ended: the frame of the bytes that follow.
    frame: u64,
    /// For standard output.
    output: Vec<u8>,
    /// For standard error.
    log: Vec<u8>,
    heads: Option<Heads>,
}

enum Form {
    Plain,
    Prefix(Prefixes),
    Json,
    Files(Folder),
}

impl GuestOutput {
    /// `styled`: whether standard output and standard error take colour. `keep`: keep heads for
    /// `--json`.
    pub(super) fn new<'a>(
        mode: &OutputMode,
        names: impl Iterator<Item = &'a str>,
        styled: [bool; 2],
        keep: bool,
    ) -> io::Result<Self> {
        let names: Vec<String> = names.map(safe_name).collect();
        let form = match mode {
            OutputMode::Plain => Form::Plain,
            OutputMode::Json => Form::Json,
            OutputMode::Prefix => {
                let width = names.iter().map(String::len).max().unwrap_or(0).min(WIDEST_NAME);
                Form::Prefix(Prefixes { width, styled, unfinished: BTreeMap::new() })
            }
            OutputMode::Files(path) => {
                std::fs::create_dir_all(path)?;
                Form::Files(Folder {
                    path: path.clone(),
                    started: BTreeSet::new(),
                    pending: BTreeMap::new(),
                })
            }
        };
        if let Form::Files(folder) = &form {
            names.iter().try_for_each(|name| folder.forget(name))?;
        }
        let heads = keep.then(|| Heads { rows: BTreeMap::new(), left: ALL_HEADS_BYTES });
        Ok(Self { form, names, frame: 0, output: Vec::new(), log: Vec::new(), heads })
    }

    /// A session starts.
    pub(super) fn add(&mut self, name: &str) {
        let name = safe_name(name);
        match &mut self.form {
            Form::Prefix(prefixes) => {
                prefixes.width = prefixes.width.max(name.len().min(WIDEST_NAME));
            }
            // A file that cannot be removed cannot be written either, which is reported.
            Form::Files(folder) => drop(folder.forget(&name)),
            Form::Plain | Form::Json => {}
        }
        self.names.push(name);
    }

    /// The name of a session.
    pub(super) fn name(&self, session: SessionId) -> &str {
        name_of(&self.names, session)
    }

    /// A frame ended; its output follows.
    pub(super) const fn frame(&mut self, frame: u64) {
        self.frame = frame;
    }

    /// Takes what a session wrote in the frame.
    pub(super) fn push(&mut self, session: SessionId, stream: Stream, bytes: &[u8]) {
        if let Some(heads) = &mut self.heads {
            heads.push((session, stream), bytes);
        }
        let out = match stream {
            Stream::Output => &mut self.output,
            Stream::Log => &mut self.log,
        };
        match &mut self.form {
            Form::Plain => out.extend_from_slice(bytes),
            Form::Prefix(prefixes) => prefixes.push((session, stream), &self.names, bytes, out),
            Form::Json => {
                let name = name_of(&self.names, session);
                self.output.extend_from_slice(json_line(self.frame, name, stream, bytes).as_bytes())
            }
            Form::Files(folder) => {
                folder.pending.entry((session, stream)).or_default().extend_from_slice(bytes)
            }
        }
    }

    /// The run is over: lines without an end are complete.
    pub(super) fn end(&mut self) {
        if let Form::Prefix(prefixes) = &mut self.form {
            for ((session, stream), line) in std::mem::take(&mut prefixes.unfinished) {
                let out = match stream {
                    Stream::Output => &mut self.output,
                    Stream::Log => &mut self.log,
                };
                prefixes.line((session, stream), &self.names, &line, out);
            }
        }
    }

    /// Writes the files of sessions that wrote something.
    pub(super) fn write_files(&mut self) -> io::Result<()> {
        match &mut self.form {
            Form::Files(folder) => folder.write(&self.names),
            Form::Plain | Form::Prefix(_) | Form::Json => Ok(()),
        }
    }

    /// What to write to standard output and to standard error.
    pub(super) fn ready(&self) -> (&[u8], &[u8]) {
        (&self.output, &self.log)
    }

    /// It was written, or has no reader.
    pub(super) fn clear(&mut self) {
        self.output.clear();
        self.log.clear();
    }

    /// Adds the heads to the object of `--json`.
    pub(super) fn add_heads(&self, sessions: &mut [SessionSummary]) {
        let Some(heads) = &self.heads else { return };
        for ((session, stream), head) in &heads.rows {
            let Some(row) = sessions.get_mut(session.0 as usize) else { continue };
            match stream {
                Stream::Output => row.output = Some(head.row()),
                Stream::Log => row.log = Some(head.row()),
            }
        }
    }
}

fn name_of(names: &[String], session: SessionId) -> &str {
    names.get(session.0 as usize).map_or("?", String::as_str)
}

/// A name without letters that a path or a terminal gives a meaning. Manifests have no others, but
/// a trace may come from anywhere.
fn safe_name(name: &str) -> String {
    let is_safe =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    name.chars().map(|letter| if is_safe(letter) { letter } else { '_' }).collect()
}

/// `prefix`: whole lines, each after the name of its session.
struct Prefixes {
    width: usize,
    styled: [bool; 2],
    /// By stream: the line that has no end yet.
    unfinished: BTreeMap<(SessionId, Stream), Vec<u8>>,
}

impl Prefixes {
    fn push(
        &mut self,
        from: (SessionId, Stream),
        names: &[String],
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) {
        let mut line = self.unfinished.remove(&from).unwrap_or_default();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            let is_whole = line.pop_if(|last| *last == b'\n').is_some();
            if is_whole || line.len() >= LONGEST_LINE {
                self.line(from, names, &line, out);
                line.clear();
            }
        }
        if !line.is_empty() {
            self.unfinished.insert(from, line);
        }
    }

    fn line(
        &self,
        (session, stream): (SessionId, Stream),
        names: &[String],
        line: &[u8],
        out: &mut Vec<u8>,
    ) {
        let (name, width) = (name_of(names, session), self.width);
        let prefix = if self.styled[stream as usize] {
            let style = color_of(session);
            format!("{style}{name:width$} |{style:#} ")
        } else {
            format!("{name:width$} | ")
        };
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(line);
        out.push(b'\n');
    }
}

/// The colour of a session's name; red is for errors.
fn color_of(session: SessionId) -> Style {
    const COLORS: [AnsiColor; 5] =
        [AnsiColor::Cyan, AnsiColor::Yellow, AnsiColor::Green, AnsiColor::Magenta, AnsiColor::Blue];
    Style::new().fg_color(Some(Color::Ansi(COLORS[session.0 as usize % COLORS.len()])))
}

/// A line of `--output json`; text as in `--input`, or hex where it is not UTF-8.
#[derive(Serialize)]
struct JsonLine<'a> {
    frame: u64,
    session: &'a str,
    stream: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
}

fn json_line(frame: u64, session: &str, stream: Stream, bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).ok();
    let hex = text.is_none().then(|| hex(bytes));
    let line = JsonLine { frame, session, stream: stream.name(), text, hex };
    serde_json::to_string(&line).expect("plain strings and numbers have a JSON form") + "\n"
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `files=DIR`: `NAME.out` and `NAME.log`. A file is open only while it is written, so that any
/// number of sessions is possible.
struct Folder {
    path: PathBuf,
    /// Files that this run has created.
    started: BTreeSet<(SessionId, Stream)>,
    pending: BTreeMap<(SessionId, Stream), Vec<u8>>,
}

impl Folder {
    fn file(&self, name: &str, stream: Stream) -> PathBuf {
        let ending = match stream {
            Stream::Output => "out",
            Stream::Log => "log",
        };
        self.path.join(format!("{name}.{ending}"))
    }

    /// Removes the files of an earlier run: a session that writes nothing has none.
    fn forget(&self, name: &str) -> io::Result<()> {
        for stream in [Stream::Output, Stream::Log] {
            match std::fs::remove_file(self.file(name, stream)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn write(&mut self, names: &[String]) -> io::Result<()> {
        for ((session, stream), bytes) in std::mem::take(&mut self.pending) {
            let path = self.file(name_of(names, session), stream);
            let mut file = if self.started.insert((session, stream)) {
                File::create(&path)?
            } else {
                File::options().append(true).open(&path)?
            };
            file.write_all(&bytes)?;
        }
        Ok(())
    }
}

/// The heads of all streams, within a limit for each and for all.
struct Heads {
    rows: BTreeMap<(SessionId, Stream), Head>,
    left: usize,
}

#[derive(Default)]
struct Head {
    bytes: Vec<u8>,
    total: u64,
}

impl Heads {
    fn push(&mut self, from: (SessionId, Stream), bytes: &[u8]) {
        let head = self.rows.entry(from).or_default();
        // A stream that was cut once takes nothing any more: its head has no hole.
        let is_whole = head.total == head.bytes.len() as u64;
        let room = if is_whole { (HEAD_BYTES - head.bytes.len()).min(self.left) } else { 0 };
        let kept = bytes.len().min(room);
        head.bytes.extend_from_slice(&bytes[..kept]);
        head.total += bytes.len() as u64;
        self.left -= kept;
    }
}

impl Head {
    fn row(&self) -> OutputRow {
        let is_cut = self.total > self.bytes.len() as u64;
        let (kept, text) = match std::str::from_utf8(&self.bytes) {
            Ok(text) => (self.bytes.len(), Some(text.to_owned())),
            // The limit cut a letter: it is cut whole.
            Err(error) if is_cut && error.error_len().is_none() => {
                let kept = &self.bytes[..error.valid_up_to()];
                (kept.len(), std::str::from_utf8(kept).ok().map(str::to_owned))
            }
            Err(_) => (self.bytes.len(), None),
        };
        OutputRow {
            bytes: self.total,
            cut: self.total - kept as u64,
            hex: text.is_none().then(|| hex(&self.bytes)),
            text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(mode: &OutputMode, styled: bool) -> GuestOutput {
        let names = ["a", "../b\u{1b}"].into_iter();
        GuestOutput::new(mode, names, [styled; 2], true).expect("no file is needed")
    }

    #[test]
    fn lines_of_two_sessions_do_not_mix() {
        let mut output = output(&OutputMode::Prefix, false);
        output.push(SessionId(0), Stream::Output, b"one\ntw");
        output.push(SessionId(1), Stream::Output, b"x\n\n");
        output.push(SessionId(0), Stream::Output, b"o\nend");
        output.push(SessionId(0), Stream::Log, b"log\n");
        output.end();
        let (out, log) = output.ready();
        assert_eq!(
            String::from_utf8_lossy(out),
            "a     | one\n.._b_ | x\n.._b_ | \na     | two\na     | end\n"
        );
        assert_eq!(String::from_utf8_lossy(log), "a     | log\n");
    }

    #[test]
    fn a_line_without_end_is_broken() {
        let mut output = output(&OutputMode::Prefix, false);
        for _ in 0..5 {
            output.push(SessionId(0), Stream::Output, &[b'x'; LONGEST_LINE / 2]);
        }
        assert_eq!(output.ready().0.iter().filter(|byte| **byte == b'\n').count(), 2);
    }

    #[test]
    fn names_have_colour_only_where_it_is_taken() {
        for styled in [false, true] {
            let mut output = output(&OutputMode::Prefix, styled);
            output.push(SessionId(0), Stream::Output, b"one\n");
            assert_eq!(output.ready().0.contains(&0x1b), styled);
        }
    }

    #[test]
    fn heads_are_bounded_and_count_what_was_cut() {
        let mut output = output(&OutputMode::Plain, false);
        // The letter has two bytes, and the second one is beyond the limit.
        output.push(SessionId(0), Stream::Output, &[b'x'; HEAD_BYTES - 1]);
        output.push(SessionId(0), Stream::Output, "é".as_bytes());
        output.push(SessionId(0), Stream::Output, b"more");
        output.push(SessionId(1), Stream::Log, &[0xff, 0x00]);
        let mut sessions = vec![SessionSummary::default(), SessionSummary::default()];
        output.add_heads(&mut sessions);
        let row = sessions[0].output.clone().expect("it wrote");
        assert_eq!((row.bytes, row.cut), (HEAD_BYTES as u64 + 5, 6));
        assert_eq!(row.text.map(|text| text.len()), Some(HEAD_BYTES - 1));
        let row = sessions[1].log.clone().expect("it wrote");
        assert_eq!((row.text, row.hex.as_deref()), (None, Some("ff00")));
        let mut heads = Heads { rows: BTreeMap::new(), left: 10 };
        heads.push((SessionId(0), Stream::Output), &[b'x'; 8]);
        heads.push((SessionId(1), Stream::Output), &[b'x'; 8]);
        heads.push((SessionId(1), Stream::Output), b"y");
        let kept = |session| heads.rows[&(SessionId(session), Stream::Output)].row().cut;
        assert_eq!((kept(0), kept(1)), (0, 7));
    }
}
