//! Inputs of a live machine in a trace: a chunk of inputs comes before the chunk with the frames
//! that take them (trace-format 18).

use crate::machine::{MachineError, Reader, put_bytes, put_number};
use wavelock_abi::{Cycles, Frame, SessionId, Weight};
use wavelock_kernel::{CapOverrun, CapSettings};
use wavelock_system::{Control, Input, Recipient};

const BYTES: u64 = 0;
const END: u64 = 1;
const STOP: u64 = 2;
const ANSWERS: u64 = 3;
const CONTROL: u64 = 4;

const WEIGHT: u64 = 0;
const CAP: u64 = 1;
const NO_CAP: u64 = 2;
const CONTEXT: u64 = 3;
const HOLD: u64 = 4;
const RELEASE: u64 = 5;
const END_SESSION: u64 = 6;

/// Appends the inputs of one frame to a chunk's payload.
pub(crate) fn put_inputs(frame: Frame, inputs: &[Input], out: &mut Vec<u8>) {
    put_number(out, frame.0);
    put_number(out, inputs.len() as u64);
    for input in inputs {
        match input {
            Input::Bytes { to, bytes } => {
                put_number(out, BYTES);
                put_number(out, recipient_code(*to));
                put_bytes(out, bytes);
            }
            Input::End { to } => {
                put_number(out, END);
                put_number(out, recipient_code(*to));
            }
            Input::Stop => put_number(out, STOP),
            Input::Control(control) => put_control(control, out),
            Input::Answers { lane, bytes } => {
                put_number(out, ANSWERS);
                put_number(out, u64::from(*lane));
                put_bytes(out, bytes);
            }
        }
    }
}

/// A control input: its code, its session, then its own numbers.
fn put_control(control: &Control, out: &mut Vec<u8>) {
    let mut put = |code, numbers: &[u64]| {
        [CONTROL, code, u64::from(control.session().0)]
            .iter()
            .chain(numbers)
            .for_each(|&number| put_number(out, number));
    };
    match control {
        Control::Weight { weight, .. } => put(WEIGHT, &[u64::from(weight.get())]),
        Control::Cap { cap: Some(cap), .. } => {
            put(CAP, &[cap.budget.0, cap.period_frames, cap.overrun as u64]);
        }
        Control::Cap { cap: None, .. } => put(NO_CAP, &[]),
        Control::Context { name, budget, .. } => {
            put(CONTEXT, &[budget.0]);
            put_bytes(out, name.as_bytes());
        }
        Control::Hold { .. } => put(HOLD, &[]),
        Control::Release { .. } => put(RELEASE, &[]),
        Control::End { .. } => put(END_SESSION, &[]),
    }
}

fn read_control(input: &mut Reader<'_>) -> Result<Control, MachineError> {
    let error = input.malformed();
    let code = input.number()?;
    let Ok(session) = u32::try_from(input.number()?).map(SessionId) else { return Err(error) };
    Ok(match code {
        WEIGHT => {
            let weight = u16::try_from(input.number()?).ok().and_then(Weight::new);
            Control::Weight { session, weight: weight.ok_or(error)? }
        }
        CAP => {
            let (budget, period_frames) = (Cycles(input.number()?), input.number()?);
            let overrun = u8::try_from(input.number()?).ok().and_then(CapOverrun::from_code);
            let overrun = overrun.ok_or(error)?;
            Control::Cap { session, cap: Some(CapSettings { budget, period_frames, overrun }) }
        }
        NO_CAP => Control::Cap { session, cap: None },
        CONTEXT => {
            let budget = Cycles(input.number()?);
            let name = std::str::from_utf8(input.bytes()?).map_err(|_| error)?.into();
            Control::Context { session, name, budget }
        }
        HOLD => Control::Hold { session },
        RELEASE => Control::Release { session },
        END_SESSION => Control::End { session },
        _ => return Err(error),
    })
}

/// The inputs of a chunk, by frame, ascending.
pub(crate) fn read_inputs(payload: &[u8]) -> Result<Vec<(Frame, Input)>, MachineError> {
    let mut input = Reader { bytes: payload, offset: 0 };
    let mut inputs: Vec<(Frame, Input)> = Vec::new();
    while input.offset < payload.len() {
        let error = input.malformed();
        let frame = Frame(input.number()?);
        if inputs.last().is_some_and(|(before, _)| *before >= frame) {
            return Err(error);
        }
        for _ in 0..input.count()? {
            let read = read_input(&mut input)?;
            inputs.push((frame, read));
        }
    }
    Ok(inputs)
}

fn read_input(input: &mut Reader<'_>) -> Result<Input, MachineError> {
    let error = input.malformed();
    Ok(match input.number()? {
        BYTES => {
            let to = read_recipient(input)?;
            Input::Bytes { to, bytes: input.bytes()?.into() }
        }
        END => Input::End { to: read_recipient(input)? },
        STOP => Input::Stop,
        CONTROL => Input::Control(read_control(input)?),
        ANSWERS => {
            let lane = u16::try_from(input.number()?).map_err(|_| error)?;
            Input::Answers { lane, bytes: input.bytes()?.into() }
        }
        _ => return Err(error),
    })
}

/// A recipient as a number: every session, or one.
pub(crate) fn recipient_code(to: Recipient) -> u64 {
    match to {
        Recipient::All => u64::MAX,
        Recipient::Session(session) => u64::from(session.0),
    }
}

fn read_recipient(input: &mut Reader<'_>) -> Result<Recipient, MachineError> {
    let error = input.malformed();
    match input.number()? {
        u64::MAX => Ok(Recipient::All),
        session => match u32::try_from(session) {
            Ok(session) => Ok(Recipient::Session(SessionId(session))),
            Err(_) => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_round_trip_and_malformed_ones_are_refused() {
        let to = Recipient::Session(SessionId(3));
        let first = [Input::Bytes { to, bytes: [1, 2].into() }, Input::End { to: Recipient::All }];
        let mut bytes = Vec::new();
        put_inputs(Frame(4), &first, &mut bytes);
        let border = bytes.len();
        put_inputs(Frame(9), &[Input::Stop], &mut bytes);
        let read = read_inputs(&bytes).expect("own bytes");
        let [one, two] = first;
        assert_eq!(read, [(Frame(4), one), (Frame(4), two), (Frame(9), Input::Stop)]);
        for end in 1..bytes.len() {
            assert_eq!(read_inputs(&bytes[..end]).is_ok(), end == border, "{end}");
        }
        bytes[border] = 4;
        assert!(read_inputs(&bytes).is_err(), "frames ascend");
    }
}
