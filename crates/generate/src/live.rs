//! Random live machines: the machine of a seed, made live, with inputs and control inputs of random
//! frames. The draws are their own, so that [`crate::machine`] and [`crate::inputs`] stay as they
//! are.

use crate::{Draws, TURNS_TEXT, actor, machine};
use std::sync::Arc;
use wavelock_abi::{Cycles, Frame, SCHEDULER_COSTS_V1, SessionId, Weight};
use wavelock_kernel::{CapOverrun, CapSettings};
use wavelock_module::{Limits, Module};
use wavelock_system::{
    Control, Input, LaterModule, MachineSpec, NewSession, Recipient, Replacement,
};

/// Frames over which inputs are given.
const FRAMES: u64 = 60;

/// A live machine with its inputs.
#[derive(Clone, Debug)]
pub struct LiveCase {
    /// The machine.
    pub spec: MachineSpec,
    /// Its inputs, ascending by frame; the last stops it.
    pub inputs: Vec<(Frame, Input)>,
}

/// The live machine of a seed with its inputs.
#[must_use]
pub fn live(seed: u64) -> LiveCase {
    let mut spec = machine(seed);
    (spec.live, spec.max_frames) = (true, None);
    let mut draws = Draws(seed ^ 0x11fe);
    let mut inputs = Vec::new();
    let mut sessions = spec.sessions.len() as u64;
    for frame in (0..FRAMES).map(Frame) {
        if draws.one_in(12) {
            let new = Box::new(start(&mut draws, &spec, sessions));
            inputs.push((frame, Input::Control(Control::Start(new))));
            sessions += 1;
        }
        if draws.one_in(12) {
            let replacement = Box::new(replacement(&mut draws, &spec, sessions));
            inputs.push((frame, Input::Control(Control::Replace(replacement))));
        }
        while draws.one_in(4) {
            inputs.push((frame, bytes(&mut draws, sessions)));
        }
        while draws.one_in(3) {
            control(&mut draws, &spec, (frame, sessions), &mut inputs);
        }
    }
    inputs.push((Frame(FRAMES + 30), Input::Stop));
    inputs.sort_by_key(|(frame, _)| *frame);
    LiveCase { spec, inputs }
}

fn session(draws: &mut Draws, sessions: u64) -> SessionId {
    SessionId(draws.below(sessions) as u32)
}

/// The actor of the machine's module, or of another one.
fn later_module(draws: &mut Draws, spec: &MachineSpec, number: u64) -> LaterModule {
    let (module, source) = actor(spec.seed);
    match draws.one_in(2) {
        true => LaterModule::new(module, source.as_bytes().into()),
        false => {
            let other = format!("(i64.const {}) (i64.const {number})", draws.below(60));
            let source = source.replace(TURNS_TEXT, &other);
            let module = Module::from_text(source.as_bytes(), &Limits::default());
            let module = module.expect("the actor is valid with other constants");
            LaterModule::new(Arc::new(module), source.as_bytes().into())
        }
    }
}

/// Another module for a session, which may have ended.
fn replacement(draws: &mut Draws, spec: &MachineSpec, sessions: u64) -> Replacement {
    let (session, number) = (session(draws, sessions), draws.below(4));
    let module = later_module(draws, spec, number);
    let carry = draws.next().to_le_bytes()[..draws.below(9) as usize].into();
    Replacement { session, module, carry }
}

/// A session that starts.
fn start(draws: &mut Draws, spec: &MachineSpec, number: u64) -> NewSession {
    let module = later_module(draws, spec, number);
    let mut new = NewSession::new(&format!("later.{number}"), module);
    new.lane = draws.one_in(3).then(|| draws.below(u64::from(spec.lanes)) as u16);
    new.weight = Weight::new(1 + draws.below(4_096) as u16).unwrap_or_default();
    for channel in &spec.channels {
        if draws.one_in(2) {
            new.ports.push((format!("port.{:02}", new.ports.len()), channel.name.clone()));
        }
    }
    if draws.one_in(2) {
        new.channels.push((format!("later.{number}"), 1 + draws.below(6) as u32));
    }
    if draws.one_in(4) {
        new.cap = Some(cap(draws, spec, 1));
    }
    if draws.one_in(4) {
        new.limits.coroutines = Some(1 + draws.below(4) as u32);
        new.limits.output_bytes = draws.one_in(2).then(|| draws.below(64) as u32);
    }
    new
}

/// A cap that the machine can enforce on this number of lanes.
fn cap(draws: &mut Draws, spec: &MachineSpec, lanes: u64) -> CapSettings {
    let gaps = spec.modules.iter().map(|module| module.code().gap().0);
    let least = 2 * (gaps.max().unwrap_or(0) + SCHEDULER_COSTS_V1.switch.0);
    let budget = Cycles(least * lanes + draws.below(spec.frame_cycles.0 / 4 + 1));
    let overrun = CapOverrun::ALL[draws.below(CapOverrun::ALL.len() as u64) as usize];
    CapSettings { budget, period_frames: 1 + draws.below(4), overrun }
}

fn bytes(draws: &mut Draws, sessions: u64) -> Input {
    let to = match draws.one_in(3) {
        true => Recipient::All,
        false => Recipient::Session(session(draws, sessions)),
    };
    match draws.one_in(12) {
        true => Input::End { to },
        false => {
            let bytes = draws.next().to_le_bytes()[..draws.below(9) as usize].into();
            Input::Bytes { to, bytes }
        }
    }
}

/// Draws a control input; a hold mostly with its release.
fn control(
    draws: &mut Draws,
    spec: &MachineSpec,
    (frame, sessions): (Frame, u64),
    inputs: &mut Vec<(Frame, Input)>,
) {
    let session = session(draws, sessions);
    let of_spec = spec.sessions.get(session.0 as usize);
    let drawn = match draws.below(12) {
        0..3 => {
            let weight = Weight::new(1 + draws.below(4_096) as u16).unwrap_or_default();
            Control::Weight { session, weight }
        }
        3..6 if draws.one_in(4) => Control::Cap { session, cap: None },
        3..6 => {
            let lanes = of_spec.map_or(1, |session| session.placement.lanes().len()) as u64;
            Control::Cap { session, cap: Some(cap(draws, spec, lanes)) }
        }
        6..8 => {
            let contexts = &spec.contexts;
            let Some(context) = contexts.get(draws.below(contexts.len().max(1) as u64) as usize)
            else {
                return;
            };
            let budget = Cycles(context.budget.0 / 2 + draws.below(4 * context.budget.0));
            Control::Context {
                session: context.session,
                name: context.name.as_str().into(),
                budget,
            }
        }
        8..11 => {
            if !draws.one_in(8) {
                let until = Frame(frame.0 + draws.below(9));
                inputs.push((until, Input::Control(Control::Release { session })));
            }
            Control::Hold { session }
        }
        _ => Control::End { session },
    };
    inputs.push((frame, Input::Control(drawn)));
}
