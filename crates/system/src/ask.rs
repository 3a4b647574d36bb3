//! Asks: host functions whose reply comes in a later frame (semantics 105 to 107).
//!
//! ```text
//!   call ──▶ open, the coroutine blocks ──▶ World::asks ──▶ the embedder
//!                        │                                      │ give (Input::Reply)
//!                        │ end of its coroutine                 ▼
//!                        └──▶ closed          frame start: closed, the coroutine is ready
//! ```
//!
//! Contract: a reply is an input of a live machine, recorded and in the digest. An ask is open
//! exactly while its coroutine waits for the reply: what is open is a function of the waits, so
//! only the number of asks made is state. A reply to an ask that is not open when its frame starts
//! is an event and changes nothing.

use crate::functions::{FIRST_FUNCTION, HostKind, MOST_HOST_VALUES, mix};
use crate::group::Group;
use crate::live::{GiveError, Input};
use crate::session::SessionState;
use crate::spec::MachineSpec;
use crate::step::{Flow, Site, wait_code};
use crate::task::{TaskTable, Wait};
use crate::world::World;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use wavelock_abi::{CoroutineName, SessionId};
use wavelock_kernel::{BlockReason, Outcome, WakeSource};
use wavelock_trace::Event;

/// The name of an ask.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AskId {
    /// The session that asks.
    pub session: SessionId,
    /// How many asks the session made before it.
    pub number: u64,
    /// A sum over the function and its arguments. A machine that was rolled back may ask something
    /// else under the same number; a reply to the one is no reply to the other.
    pub question: u64,
}

/// An ask that waits for its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenAsk {
    /// Its name.
    pub id: AskId,
    /// The coroutine that waits.
    pub coroutine: CoroutineName,
    /// The position of the function.
    pub function: usize,
    /// Its arguments, then zeros.
    pub arguments: [u64; MOST_HOST_VALUES],
    /// A reply was given and waits for its frame.
    pub has_reply: bool,
}

/// The asks of a session, if its machine has functions that ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asks {
    pub(crate) made: u64,
    /// The coroutines that wait, by number. Not state: it follows from their waits.
    pub(crate) open: BTreeMap<u64, u32>,
}

impl Asks {
    /// Lists the open asks anew, from the waits of a session that was read.
    pub(crate) fn collect(&mut self, tasks: &TaskTable) -> bool {
        self.open.clear();
        tasks.iter_live().all(|(slot, task)| match task.wait {
            Wait::Asking(number) => number < self.made && self.open.insert(number, slot).is_none(),
            _ => true,
        })
    }
}

impl MachineSpec {
    /// Whether a function asks the embedder.
    pub(crate) fn has_asks(&self) -> bool {
        self.host.functions.iter().any(|function| function.kind == HostKind::Ask)
    }
}

/// The sum over a question.
fn question(function: usize, arguments: &[u64]) -> u64 {
    arguments.iter().fold(mix(0, function as u64), |sum, word| mix(sum, *word))
}

/// The position of the function that a coroutine is in a call of, with its arguments.
fn called(tasks: &TaskTable, slot: u32) -> Option<(usize, [u64; MOST_HOST_VALUES])> {
    let coroutine = tasks.coroutine_ref(slot)?;
    let function = coroutine.host_call()?.number.checked_sub(FIRST_FUNCTION)?;
    let mut arguments = [0; MOST_HOST_VALUES];
    let given = coroutine.host_arguments();
    arguments.iter_mut().zip(given).for_each(|(argument, word)| *argument = *word);
    Some((usize::from(function), arguments))
}

impl SessionState {
    /// The open ask of this number.
    fn open_ask(&self, number: u64) -> Option<OpenAsk> {
        let slot = *self.asks.as_ref()?.open.get(&number)?;
        let (function, arguments) = called(&self.tasks, slot)?;
        let id = AskId { session: self.id, number, question: question(function, &arguments) };
        let coroutine = self.coroutine_name(slot);
        Some(OpenAsk { id, coroutine, function, arguments, has_reply: false })
    }

    /// The coroutine of an ask ended: nobody waits for the reply.
    pub(crate) fn left_ask(&mut self, number: u64) {
        if let Some(asks) = &mut self.asks {
            asks.open.remove(&number);
        }
    }
}

impl Group {
    /// The running coroutine asks, and blocks.
    pub(crate) fn ask(&mut self, site: Site<'_>, function: usize) -> Flow {
        let state = &mut self.sessions[site.session];
        let session = u64::from(state.id.0);
        let Some(asks) = &mut state.asks else { return self.host_failed(site) };
        let number = asks.made;
        asks.made += 1;
        asks.open.insert(number, site.slot);
        state.tasks.live_at(site.slot).wait = Wait::Asking(number);
        let reason = BlockReason::Input;
        let log = &mut self.lanes[site.lane].log;
        log.event(&Event::Ask { session, number, function: function as u64 });
        log.event(&Event::Wait { reason: reason as u64, owner: session, index: number });
        Flow::Stop(Outcome::Blocked(reason), wait_code(reason))
    }

    /// The coroutine runs again with the reply to its ask.
    pub(crate) fn finish_ask(&mut self, site: Site<'_>) -> Flow {
        let task = self.sessions[site.session].tasks.live_at(site.slot);
        let Wait::Bytes(reply) = core::mem::replace(&mut task.wait, Wait::None) else {
            return self.host_failed(site);
        };
        let (words, count) = words(&reply);
        self.resume(site, &words[..count])
    }
}

/// The words of a reply, as a coroutine's wait holds them, and their number.
fn words(bytes: &[u8]) -> ([u64; MOST_HOST_VALUES], usize) {
    let mut words = [0; MOST_HOST_VALUES];
    let mut count = 0;
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
        count += 1;
    }
    (words, count)
}

/// The reason for which the kernel must have blocked a coroutine that is in a call of a host
/// function and waits, if it must. `None` if the wait is impossible.
pub(crate) fn audit_ask(
    group: &Group,
    state: &SessionState,
    slot: u32,
    wait: &Wait,
) -> Option<Option<BlockReason>> {
    let (function, _) = called(&state.tasks, slot)?;
    let import = group.shared.host.imports.functions.get(function)?;
    match wait {
        _ if import.kind != HostKind::Ask => None,
        Wait::Asking(_) => Some(Some(BlockReason::Input)),
        Wait::Bytes(reply) if reply.len() == 8 * import.results.len() => Some(None),
        _ => None,
    }
}

/// Asks, for the embedder.
impl World {
    /// The asks that wait for a reply, by session and number.
    pub fn asks(&self) -> impl Iterator<Item = OpenAsk> {
        let sessions = self.spec.has_asks().then(|| self.session_ids()).into_iter().flatten();
        sessions.flat_map(|session| {
            let state = self.session_ref(session);
            let open = state.asks.iter().flat_map(|asks| asks.open.keys());
            open.filter_map(|number| state.open_ask(*number)).map(|ask| OpenAsk {
                has_reply: self.replies.contains(&(ask.id.session, ask.id.number)),
                ..ask
            })
        })
    }

    /// How many asks a session has made.
    #[must_use]
    pub fn asks_made(&self, session: SessionId) -> u64 {
        let is_known = (session.0 as usize) < self.session_groups.len();
        let asks = is_known.then(|| self.session_ref(session).asks.as_deref()).flatten();
        asks.map_or(0, |asks| asks.made)
    }

    /// Whether a reply may be given now.
    pub(crate) fn check_reply(&self, id: AskId, results: &[u64]) -> Result<(), GiveError> {
        let (session, number) = (id.session.0, id.number);
        let state = self.session_ref(id.session);
        let Some(ask) = state.open_ask(number) else {
            let made = state.asks.as_ref().map_or(0, |asks| asks.made);
            return Err(GiveError::NoAsk { session, number, made });
        };
        if ask.id.question != id.question {
            return Err(GiveError::OtherAsk { session, number });
        }
        let expected = self.spec.host.functions[ask.function].results.len();
        if results.len() != expected {
            let (found, expected) = (results.len() as u64, expected as u64);
            return Err(GiveError::ReplyValues { session, number, found, expected });
        }
        if self.replies.contains(&(id.session, number)) {
            return Err(GiveError::Replied { session, number });
        }
        Ok(())
    }

    /// A reply waits for its frame.
    pub(crate) fn note_reply(&mut self, input: &Input) {
        if let Input::Reply { ask, .. } = input {
            self.replies.insert((ask.session, ask.number));
        }
    }

    /// Takes a reply at its frame's start, when the lanes' frames have started: the event, and its
    /// coroutine is ready.
    pub(crate) fn take_reply(&mut self, id: AskId, results: &[u64]) {
        self.replies.remove(&(id.session, id.number));
        let state = self.session_ref(id.session);
        let ask = state.open_ask(id.number).filter(|ask| {
            let import = &self.spec.host.functions[ask.function];
            ask.id == id && import.results.len() == results.len()
        });
        let (session, number) = (u64::from(id.session.0), id.number);
        let Some(ask) = ask else {
            return self.emit(&Event::LostReply { session, number });
        };
        let bytes: Box<[u8]> = results.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.emit(&Event::Reply { session, number, bytes: &bytes });
        self.session(id.session).left_ask(id.number);
        self.answer_across(ask.coroutine, Wait::Bytes(Box::new(bytes)), WakeSource::Input);
    }
}
