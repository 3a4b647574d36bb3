//! The debugger's commands: help, parser and error messages. Elsewhere: `debugger` executes them.

/// The help text.
pub const HELP: &str = "\
step [N], s          run N steps             back [N], b          go back N steps
wave [N], w          to the Nth wave's end   frame [N], f         to the start of the Nth frame from here
safepoint [N], i     run N safepoints of the next slice
instruction [N], n   run N instructions, and show what the last one changed
back wave|frame|safepoint|instruction [N]    the same backwards
goto step N          to the state before step N       goto frame N
break function NAME | channel OWNER/N | write SESSION ADDRESS [LENGTH] | state COROUTINE STATE
breaks               list breakpoints        delete N             delete breakpoint N
continue, c          run to a breakpoint     reverse, r           run back to a breakpoint
coroutines [SESSION] list coroutines         stack COROUTINE      its call stack
channels [SESSION]   list channels           memory SESSION ADDRESS [LENGTH]
why COROUTINE        why it runs next or not events               events of the last step
lanes                next coroutine of each  contexts             budgets and their holders
caps                 caps of sessions        where                the position in the run
screen               overview                leases               leases of lanes
help, quit
A coroutine is session/slot or session/slot.generation; an empty line repeats the last command.
";

/// The usage of each command with required arguments.
const FORMS: &[(&str, &str)] = &[
    ("goto", "goto step N | goto frame N"),
    ("delete", "delete N, a breakpoint by its number in `breaks`"),
    ("stack", "stack COROUTINE, as in `stack main/0`"),
    ("memory", "memory SESSION ADDRESS [LENGTH], as in `memory main 0x40 16`"),
    ("why", "why COROUTINE, as in `why main/0`"),
];

/// The names of all commands.
const WORDS: &[&str] = &[
    "step",
    "wave",
    "frame",
    "safepoint",
    "instruction",
    "back",
    "goto",
    "break",
    "breaks",
    "delete",
    "continue",
    "reverse",
    "coroutines",
    "stack",
    "channels",
    "memory",
    "why",
    "contexts",
    "caps",
    "leases",
    "events",
    "lanes",
    "where",
    "screen",
    "help",
    "quit",
];

/// The error for a line that cannot be parsed: the usage of its command, or a suggestion if there
/// is no such command.
fn refuse(line: &str) -> String {
    let first = line.split_whitespace().next().unwrap_or_default();
    if let Some((_, form)) = FORMS.iter().find(|(word, _)| *word == first) {
        return format!("`{line}`: usage: {form}");
    }
    if WORDS.contains(&first) {
        return format!("`{first}` takes no arguments");
    }
    let sorted = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    let begins =
        |word: &&&str| first.len() > 1 && (word.starts_with(first) || first.starts_with(**word));
    let near = WORDS
        .iter()
        .find(begins)
        .or_else(|| WORDS.iter().find(|word| sorted(word) == sorted(first)));
    match near {
        Some(word) => {
            format!("`{first}` is not a command; did you mean `{word}`? `help` lists them")
        }
        None => format!("`{first}` is not a command; `help` lists them"),
    }
}

/// The unit of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Pick, slice and commit.
    Step,
    /// To the end of a wave, where effects cross lanes.
    Wave,
    /// Frame by frame.
    Frame,
    /// To a safepoint, where the scheduler can act.
    Safepoint,
    /// One WebAssembly instruction.
    Instruction,
}

impl Unit {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Wave => "wave",
            Self::Frame => "frame",
            Self::Safepoint => "safepoint",
            Self::Instruction => "instruction",
        }
    }
}

/// A command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Forwards.
    Forward(Unit, u64),
    /// Backwards.
    Back(Unit, u64),
    /// To the state before a step.
    GotoStep(u64),
    /// To the start of a frame.
    GotoFrame(u64),
    /// Set a breakpoint; its arguments.
    Break(Vec<String>),
    /// List them.
    Breaks,
    /// Delete one.
    Delete(usize),
    /// Run to a breakpoint.
    Continue,
    /// Run back to one.
    Reverse,
    /// Coroutines, of one session or of all.
    Coroutines(Option<String>),
    /// A coroutine's call stack.
    Stack(String),
    /// Channels, of one session or of all.
    Channels(Option<String>),
    /// Bytes.
    Memory(String, u64, u64),
    /// Every context.
    Contexts,
    /// Caps of sessions.
    Caps,
    /// Leases of lanes.
    Leases,
    /// Why a coroutine runs next, or not.
    Why(String),
    /// The events of the last step.
    Events,
    /// What each lane would run next.
    Lanes,
    /// The position in the run.
    Where,
    /// The overview.
    Screen,
    /// The commands.
    Help,
    /// Leave the debugger.
    Quit,
}

impl Command {
    /// Parses a line that is not empty.
    ///
    /// # Errors
    /// A message for the user.
    pub fn parse(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let count = |words: &[&str]| match words {
            [] => Ok(1),
            [text] => number(text),
            _ => Err(format!("`{line}` has too many arguments")),
        };
        let one = |rest: &[&str]| match rest {
            [] => Ok(None),
            [word] => Ok(Some((*word).to_owned())),
            _ => Err(format!("`{line}` has too many arguments")),
        };
        Ok(match words.as_slice() {
            ["step" | "s", rest @ ..] => Self::Forward(Unit::Step, count(rest)?),
            ["wave" | "w", rest @ ..] => Self::Forward(Unit::Wave, count(rest)?),
            ["frame" | "f", rest @ ..] => Self::Forward(Unit::Frame, count(rest)?),
            ["safepoint" | "i", rest @ ..] => Self::Forward(Unit::Safepoint, count(rest)?),
            ["instruction" | "n", rest @ ..] => Self::Forward(Unit::Instruction, count(rest)?),
            ["back" | "b", "instruction", rest @ ..] => Self::Back(Unit::Instruction, count(rest)?),
            ["back" | "b", "wave", rest @ ..] => Self::Back(Unit::Wave, count(rest)?),
            ["back" | "b", "frame", rest @ ..] => Self::Back(Unit::Frame, count(rest)?),
            ["back" | "b", "safepoint", rest @ ..] => Self::Back(Unit::Safepoint, count(rest)?),
            ["back" | "b", "step", rest @ ..] | ["back" | "b", rest @ ..] => {
                Self::Back(Unit::Step, count(rest)?)
            }
            ["goto", "step", at] => Self::GotoStep(number(at)?),
            ["goto", "frame", at] => Self::GotoFrame(number(at)?),
            ["break", rest @ ..] => {
                Self::Break(rest.iter().map(|word| (*word).to_owned()).collect())
            }
            ["breaks"] => Self::Breaks,
            ["delete", at] => Self::Delete(number(at)? as usize),
            ["continue" | "c"] => Self::Continue,
            ["reverse" | "r"] => Self::Reverse,
            ["coroutines", rest @ ..] => Self::Coroutines(one(rest)?),
            ["stack", coroutine] => Self::Stack((*coroutine).into()),
            ["channels", rest @ ..] => Self::Channels(one(rest)?),
            ["memory", session, address] => Self::Memory((*session).into(), number(address)?, 64),
            ["memory", session, address, length] => {
                Self::Memory((*session).into(), number(address)?, number(length)?)
            }
            ["why", coroutine] => Self::Why((*coroutine).into()),
            ["contexts"] => Self::Contexts,
            ["caps"] => Self::Caps,
            ["leases"] => Self::Leases,
            ["events"] => Self::Events,
            ["lanes"] => Self::Lanes,
            ["where"] => Self::Where,
            ["screen"] => Self::Screen,
            ["help" | "?"] => Self::Help,
            ["quit" | "q"] => Self::Quit,
            _ => return Err(refuse(line)),
        })
    }
}

pub(crate) fn number(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    let value = digits
        .strip_prefix("0x")
        .map_or_else(|| digits.parse(), |hex| u64::from_str_radix(hex, 16));
    value.map_err(|_| format!("`{text}` is not an integer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_in_the_help_is_parsed() {
        for line in [
            "step",
            "s 3",
            "back",
            "b 2",
            "wave",
            "w 2",
            "frame",
            "f",
            "safepoint 4",
            "i",
            "instruction 4",
            "n",
            "back instruction 2",
            "back wave",
            "back frame 2",
            "back safepoint",
            "back step 2",
            "goto step 10",
            "goto frame 0x10",
            "break function main",
            "breaks",
            "delete 1",
            "continue",
            "c",
            "reverse",
            "r",
            "coroutines",
            "coroutines main",
            "stack main/0",
            "channels",
            "memory main 0x40 16",
            "why main/0.1",
            "contexts",
            "caps",
            "leases",
            "events",
            "lanes",
            "where",
            "screen",
            "help",
            "quit",
        ] {
            assert!(Command::parse(line).is_ok(), "{line}: {:?}", Command::parse(line));
        }
        for word in WORDS {
            assert!(HELP.contains(word), "{word}");
        }
        assert!(FORMS.iter().all(|(word, form)| WORDS.contains(word) && form.starts_with(word)));
    }

    #[test]
    fn errors_give_the_usage_or_a_suggestion() {
        for (line, said) in [
            ("stepp", "`stepp` is not a command; did you mean `step`? `help` lists them"),
            ("stpe 3", "`stpe` is not a command; did you mean `step`? `help` lists them"),
            ("cont", "`cont` is not a command; did you mean `continue`? `help` lists them"),
            ("print x", "`print` is not a command; `help` lists them"),
            ("x", "`x` is not a command; `help` lists them"),
            ("step x", "`x` is not an integer"),
            ("step 1 2", "`step 1 2` has too many arguments"),
            ("goto", "`goto`: usage: goto step N | goto frame N"),
            ("goto 7", "`goto 7`: usage: goto step N | goto frame N"),
            (
                "memory main",
                "`memory main`: usage: memory SESSION ADDRESS [LENGTH], as in `memory main 0x40 16`",
            ),
            ("why", "`why`: usage: why COROUTINE, as in `why main/0`"),
            ("quit now", "`quit` takes no arguments"),
            ("break-in", "`break-in` is not a command; did you mean `break`? `help` lists them"),
        ] {
            assert_eq!(Command::parse(line), Err(said.to_owned()));
        }
    }
}
