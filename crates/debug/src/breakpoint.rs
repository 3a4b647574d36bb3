//! Breakpoints: conditions on a step after which a run stops, forwards or backwards.

use crate::names::{NameError, function_name, parse_coroutine, parse_session};
use crate::words::{STATE_WORDS, state_word};
use std::collections::BTreeMap;
use wavelock_abi::{ChannelId, CoroutineName, SessionId};
use wavelock_replay::Timeline;
use wavelock_system::World;
use wavelock_trace::Event;

/// A condition to stop at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Breakpoint {
    /// Before a function of this name is entered, in any session; backwards, after the step in
    /// which it ran.
    Function(String),
    /// After a step that sent to, received from or closed a channel, or a wave's end that delivered
    /// to it.
    Channel(ChannelId),
    /// After a step that changed one of these bytes.
    Write {
        /// The session that owns the memory.
        session: SessionId,
        /// The first byte.
        address: u64,
        /// The number of bytes.
        length: u64,
    },
    /// After a step that changed a coroutine's state to this one.
    State {
        /// The coroutine.
        coroutine: CoroutineName,
        /// The name of the state.
        state: String,
    },
}

impl Breakpoint {
    /// Parses the arguments of `break`.
    pub(crate) fn parse(words: &[&str], world: &World) -> Result<Self, String> {
        let named = |error: NameError| error.to_string();
        let number = |text: &str| {
            let value = text
                .strip_prefix("0x")
                .map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
            value.map_err(|_| format!("`{text}` is not an integer"))
        };
        match words {
            ["function", name] => {
                let has_it = |module| functions(module).any(|(_, known)| known == *name);
                if !world.spec().modules.iter().any(|module| has_it(module)) {
                    return Err(format!("no module has a function `{name}`"));
                }
                Ok(Self::Function((*name).into()))
            }
            ["channel", channel] => {
                let (owner, index) = channel
                    .rsplit_once('/')
                    .ok_or("write a channel as OWNER/N, as in `main/0`")?;
                let index = u32::try_from(number(index)?)
                    .map_err(|_| format!("`{index}` is not a channel number"))?;
                let owner = parse_session(owner, world.spec()).map_err(named)?;
                Ok(Self::Channel(ChannelId { owner, index }))
            }
            ["write", session, address, length @ ..] => {
                let length = length.first().map_or(Ok(1), |text| number(text))?.clamp(1, 4096);
                let session = parse_session(session, world.spec()).map_err(named)?;
                Ok(Self::Write { session, address: number(address)?, length })
            }
            ["state", coroutine, state] if STATE_WORDS.contains(state) => {
                let coroutine = parse_coroutine(coroutine, world).map_err(named)?;
                Ok(Self::State { coroutine, state: (*state).into() })
            }
            ["state", _, state] => Err(format!("there is no state `{state}`; states: {}", STATE_WORDS.join(", "))),
            _ => Err("usage: break function NAME | channel OWNER/N | write SESSION ADDRESS [LENGTH] | state COROUTINE STATE".into()),
        }
    }

    /// The function it is about.
    pub(crate) fn function(&self) -> Option<&str> {
        match self {
            Self::Function(name) => Some(name),
            _ => None,
        }
    }

    /// The breakpoint as typed.
    #[must_use]
    pub fn text(&self, world: &World) -> String {
        let name = |session: SessionId| {
            world
                .spec()
                .sessions
                .get(session.0 as usize)
                .map_or("?", |session| session.name.as_str())
        };
        match self {
            Self::Function(function) => format!("function {function}"),
            Self::Channel(id) => format!("channel {}/{}", name(id.owner), id.index),
            Self::Write { session, address, length } => {
                format!("write {} {address:#x} {length}", name(*session))
            }
            Self::State { coroutine, state } => {
                format!("state {} {state}", crate::names::show(*coroutine, world.spec()))
            }
        }
    }
}

/// The state after the previous step, which breakpoints compare with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    functions: BTreeMap<usize, u64>,
    bytes: BTreeMap<usize, Option<Vec<u8>>>,
    states: BTreeMap<usize, Option<&'static str>>,
    started: bool,
}

impl Watch {
    /// The indices of the breakpoints that the last step hit. The first call only records the
    /// state.
    pub(crate) fn hits<R>(
        &mut self,
        breakpoints: &[Breakpoint],
        timeline: &Timeline<R>,
    ) -> Vec<usize>
    where
        R: std::io::Read + std::io::Seek,
    {
        let world = timeline.world();
        let mut hits = Vec::new();
        for (at, breakpoint) in breakpoints.iter().enumerate() {
            let hit = match breakpoint {
                Breakpoint::Function(name) => {
                    let now = cycles_of(world, name);
                    let before = self.functions.insert(at, now).unwrap_or(0);
                    // The counters of a world that was rebuilt start at zero.
                    now > if now < before { 0 } else { before }
                }
                Breakpoint::Channel(id) => self.started && channel_used(timeline, *id),
                Breakpoint::Write { session, address, length } => {
                    let now = world.memory(*session, *address, *length);
                    // Bytes that no longer exist were not written.
                    self.bytes
                        .insert(at, now.clone())
                        .flatten()
                        .is_some_and(|before| now.is_some_and(|now| before != now))
                }
                Breakpoint::State { coroutine, state } => {
                    let now = world
                        .look(*coroutine)
                        .and_then(|look| look.state)
                        .map_or(Some("ended"), |state| Some(state_word(state)));
                    self.states
                        .insert(at, now)
                        .is_some_and(|before| before != now && now == Some(state.as_str()))
                }
            };
            if hit && self.started {
                hits.push(at);
            }
        }
        self.started = true;
        hits
    }
}

fn functions(module: &wavelock_module::Module) -> impl Iterator<Item = (u32, String)> {
    let count = module.imported_functions() + module.code().functions().len() as u32;
    (module.imported_functions()..count).map(|index| (index, function_name(module, index)))
}

/// Cycles of all functions of a name, in all sessions.
fn cycles_of(world: &World, name: &str) -> u64 {
    let sessions = 0..world.spec().sessions.len() as u32;
    sessions.map(|session| cycles_in(world, SessionId(session), name)).sum()
}

/// Cycles of all functions of a name, in one session.
pub(crate) fn cycles_in(world: &World, session: SessionId, name: &str) -> u64 {
    let Some(profile) = world.session_profile(session) else { return 0 };
    let spec = world.spec();
    let module = &spec.modules[spec.sessions[session.0 as usize].module];
    let functions = profile.functions().filter(|(index, _)| function_name(module, *index) == name);
    functions.map(|(_, cycles)| cycles.0).sum()
}

fn channel_used<R: std::io::Read + std::io::Seek>(timeline: &Timeline<R>, id: ChannelId) -> bool {
    let is =
        |owner: u64, index: u64| owner == u64::from(id.owner.0) && index == u64::from(id.index);
    timeline.happened().iter().flat_map(|part| part.events()).flatten().any(|event| match event {
        Event::Send { owner, index }
        | Event::Receive { owner, index }
        | Event::Close { owner, index }
        | Event::Arrival { owner, index, .. }
        | Event::Entered { owner, index, .. } => is(owner, index),
        _ => false,
    })
}
