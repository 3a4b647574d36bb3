//! Random live machines: the machine of a seed, made live, with inputs and control inputs of random
//! frames. The draws are their own, so that [`crate::machine`] and [`crate::inputs`] stay as they
//! are.

use crate::{Draws, machine};
use wavelock_abi::{Cycles, Frame, SCHEDULER_COSTS_V1, SessionId, Weight};
use wavelock_kernel::{CapOverrun, CapSettings};
use wavelock_system::{Control, Input, MachineSpec, Recipient};

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
    for frame in (0..FRAMES).map(Frame) {
        while draws.one_in(4) {
            inputs.push((frame, bytes(&mut draws, &spec)));
        }
        while draws.one_in(3) {
            control(&mut draws, &spec, frame, &mut inputs);
        }
    }
    inputs.push((Frame(FRAMES + 30), Input::Stop));
    inputs.sort_by_key(|(frame, _)| *frame);
    LiveCase { spec, inputs }
}

fn session(draws: &mut Draws, spec: &MachineSpec) -> SessionId {
    SessionId(draws.below(spec.sessions.len() as u64) as u32)
}

fn bytes(draws: &mut Draws, spec: &MachineSpec) -> Input {
    let to = match draws.one_in(3) {
        true => Recipient::All,
        false => Recipient::Session(session(draws, spec)),
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
fn control(draws: &mut Draws, spec: &MachineSpec, frame: Frame, inputs: &mut Vec<(Frame, Input)>) {
    let session = session(draws, spec);
    let of_spec = &spec.sessions[session.0 as usize];
    let drawn = match draws.below(12) {
        0..3 => {
            let weight = Weight::new(1 + draws.below(4_096) as u16).unwrap_or_default();
            Control::Weight { session, weight }
        }
        3..6 if draws.one_in(4) => Control::Cap { session, cap: None },
        3..6 => {
            let gaps = spec.modules.iter().map(|module| module.code().gap().0);
            let least = 2 * (gaps.max().unwrap_or(0) + SCHEDULER_COSTS_V1.switch.0);
            let lanes = of_spec.placement.lanes().len() as u64;
            let budget = Cycles(least * lanes + draws.below(spec.frame_cycles.0 / 4 + 1));
            let (period_frames, overrun) = (1 + draws.below(4), CapOverrun::Throttle);
            Control::Cap { session, cap: Some(CapSettings { budget, period_frames, overrun }) }
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
