//! Inputs of a live machine in a trace: a chunk of inputs comes before the chunk with the frames
//! that take them (trace-format 18).

use crate::machine::{MachineError, Reader, RecordedMachine, put_bytes, put_number, words_of};
use std::collections::BTreeSet;
use wavelock_abi::{Cycles, Frame, LaneId, LatencyClass, Priority, SessionId, Weight};
use wavelock_kernel::{CapOverrun, CapSettings};
use wavelock_system::{
    AskId, Control, Input, LaterModule, NewSession, OwnLimits, Recipient, Replacement,
};

const BYTES: u64 = 0;
const END: u64 = 1;
const STOP: u64 = 2;
const ANSWERS: u64 = 3;
const CONTROL: u64 = 4;
const REPLY: u64 = 16;

const WEIGHT: u64 = 0;
const CAP: u64 = 1;
const NO_CAP: u64 = 2;
const CONTEXT: u64 = 3;
const HOLD: u64 = 4;
const RELEASE: u64 = 5;
const END_SESSION: u64 = 6;
const START: u64 = 7;
const REPLACE: u64 = 8;
const LEASE: u64 = 10;
const END_LEASE: u64 = 11;

/// The hashes of modules whose bytes a trace has.
pub(crate) type KnownModules = BTreeSet<[u8; 32]>;

/// Appends the inputs of one frame to a chunk's payload. The bytes of a module are written once.
pub(crate) fn put_inputs(
    frame: Frame,
    inputs: &[Input],
    known: &mut KnownModules,
    out: &mut Vec<u8>,
) {
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
            Input::Control(Control::Start(new)) => put_start(new, known, out),
            Input::Control(Control::Replace(replacement)) => {
                let Replacement { session, module, carry } = &**replacement;
                let head = [CONTROL, REPLACE, u64::from(session.0)];
                head.iter().for_each(|&number| put_number(out, number));
                put_module(module, known, out);
                put_bytes(out, carry);
            }
            Input::Control(control) => put_control(control, out),
            Input::Reply { ask, results } => {
                put_number(out, REPLY);
                put_number(out, u64::from(ask.session.0));
                put_number(out, ask.number);
                put_number(out, ask.question);
                put_number(out, results.len() as u64);
                results.iter().for_each(|word| put_number(out, *word));
            }
            Input::Answers { lane, bytes } => {
                put_number(out, ANSWERS);
                put_number(out, u64::from(lane.0));
                put_bytes(out, bytes);
            }
        }
    }
}

/// A control input: its code, its session, then its own numbers.
fn put_control(control: &Control, out: &mut Vec<u8>) {
    let mut put = |code, numbers: &[u64]| {
        [CONTROL, code, control.session().map_or(u64::MAX, |session| u64::from(session.0))]
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
        Control::Lease { name, .. } => {
            put(LEASE, &[]);
            put_bytes(out, name.as_bytes());
        }
        Control::EndLease { name, .. } => {
            put(END_LEASE, &[]);
            put_bytes(out, name.as_bytes());
        }
        Control::Start(_) | Control::Replace(_) => {}
    }
}

/// A session that starts.
fn put_start(new: &NewSession, known: &mut KnownModules, out: &mut Vec<u8>) {
    let NewSession {
        name,
        module,
        lane,
        priority,
        weight,
        class,
        args,
        env,
        coroutine_globals,
        channels,
        ports,
        cap,
        limits,
    } = new;
    [CONTROL, START].iter().for_each(|&number| put_number(out, number));
    put_bytes(out, name.as_bytes());
    put_module(module, known, out);
    put_number(out, lane.map_or(u64::MAX, u64::from));
    put_number(out, u64::from(priority.0));
    put_number(out, u64::from(weight.get()));
    put_number(out, *class as u64);
    put_list(out, args, |out, arg| put_bytes(out, arg.as_bytes()));
    put_list(out, env, put_pair);
    put_list(out, coroutine_globals, |out, global| put_bytes(out, global.as_bytes()));
    put_list(out, channels, |out, (name, capacity)| {
        put_bytes(out, name.as_bytes());
        put_number(out, u64::from(*capacity));
    });
    put_list(out, ports, put_pair);
    put_list(out, cap.as_slice(), |out, cap| {
        [cap.budget.0, cap.period_frames, cap.overrun as u64]
            .iter()
            .for_each(|&number| put_number(out, number));
    });
    for limit in limits_of(limits) {
        put_list(out, limit.as_slice(), |out, limit| put_number(out, *limit));
    }
}

/// The limits of a session, in the order of a trace.
fn limits_of(limits: &OwnLimits) -> [Option<u64>; 6] {
    [
        limits.coroutines.map(u64::from),
        limits.stack_bytes.map(u64::from),
        limits.session_stack_bytes,
        limits.memory_pages.map(u64::from),
        limits.channels.map(u64::from),
        limits.output_bytes.map(u64::from),
    ]
}

fn read_limits(input: &mut Reader<'_>) -> Result<OwnLimits, MachineError> {
    Ok(OwnLimits {
        coroutines: read_limit(input)?,
        stack_bytes: read_limit(input)?,
        session_stack_bytes: read_limit(input)?,
        memory_pages: read_limit(input)?,
        channels: read_limit(input)?,
        output_bytes: read_limit(input)?,
    })
}

/// A list of at most one number.
fn read_limit<T: TryFrom<u64>>(input: &mut Reader<'_>) -> Result<Option<T>, MachineError> {
    let error = input.malformed();
    let numbers = read_list(input, |input| input.number())?;
    match numbers[..] {
        [] => Ok(None),
        [number] => T::try_from(number).map(Some).map_err(|_| error),
        _ => Err(error),
    }
}

fn put_list<T>(out: &mut Vec<u8>, list: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    put_number(out, list.len() as u64);
    list.iter().for_each(|one| put(out, one));
}

fn put_pair(out: &mut Vec<u8>, (one, other): &(String, String)) {
    put_bytes(out, one.as_bytes());
    put_bytes(out, other.as_bytes());
}

/// A module: its hash, and its bytes if the trace does not have them yet.
fn put_module(module: &LaterModule, known: &mut KnownModules, out: &mut Vec<u8>) {
    out.extend_from_slice(module.hash());
    let bytes = known.insert(*module.hash()).then(|| module.bytes());
    put_list(out, bytes.as_slice(), |out, bytes| put_bytes(out, bytes));
}

fn read_module(
    input: &mut Reader<'_>,
    machine: &mut RecordedMachine,
) -> Result<LaterModule, MachineError> {
    let error = input.malformed();
    let words = [input.number()?, input.number()?, input.number()?, input.number()?];
    let bytes = read_list(input, |input| Ok(input.bytes()?.to_vec()))?;
    let found = match &bytes[..] {
        [] => machine.find_module(words),
        [bytes] => Some(machine.add_module(bytes)?),
        _ => None,
    };
    found.filter(|module| words_of(module.hash()) == words).ok_or(error)
}

fn read_start(
    input: &mut Reader<'_>,
    machine: &mut RecordedMachine,
) -> Result<Control, MachineError> {
    let offset = input.offset;
    let error = || MachineError::Malformed { offset };
    let name = read_text(input)?;
    let module = read_module(input, machine)?;
    let lane = match input.number()? {
        u64::MAX => None,
        lane => Some(u16::try_from(lane).map_err(|_| error())?),
    };
    let priority = Priority(u8::try_from(input.number()?).map_err(|_| error())?);
    let weight = u16::try_from(input.number()?).ok().and_then(Weight::new).ok_or_else(error)?;
    let class = usize::try_from(input.number()?).ok();
    let class = class.and_then(|class| LatencyClass::ALL.get(class)).copied().ok_or_else(error)?;
    let args = read_list(input, read_text)?;
    let env = read_list(input, read_pair)?;
    let coroutine_globals = read_list(input, read_text)?;
    let channels = read_list(input, |input| {
        let name = read_text(input)?;
        let malformed = input.malformed();
        Ok((name, u32::try_from(input.number()?).map_err(|_| malformed)?))
    })?;
    let ports = read_list(input, read_pair)?;
    let mut caps = read_list(input, read_cap)?;
    let cap = caps.pop();
    if !caps.is_empty() {
        return Err(error());
    }
    let limits = read_limits(input)?;
    Ok(Control::Start(Box::new(NewSession {
        name,
        module,
        lane,
        priority,
        weight,
        class,
        args,
        env,
        coroutine_globals,
        channels,
        ports,
        cap,
        limits,
    })))
}

fn read_list<T>(
    input: &mut Reader<'_>,
    mut read: impl FnMut(&mut Reader<'_>) -> Result<T, MachineError>,
) -> Result<Vec<T>, MachineError> {
    let count = input.count()?;
    (0..count).map(|_| read(input)).collect()
}

fn read_text(input: &mut Reader<'_>) -> Result<String, MachineError> {
    let error = input.malformed();
    std::str::from_utf8(input.bytes()?).map(String::from).map_err(|_| error)
}

fn read_pair(input: &mut Reader<'_>) -> Result<(String, String), MachineError> {
    Ok((read_text(input)?, read_text(input)?))
}

fn read_cap(input: &mut Reader<'_>) -> Result<CapSettings, MachineError> {
    let error = input.malformed();
    let (budget, period_frames) = (Cycles(input.number()?), input.number()?);
    let overrun = u8::try_from(input.number()?).ok().and_then(CapOverrun::from_code);
    Ok(CapSettings { budget, period_frames, overrun: overrun.ok_or(error)? })
}

fn read_control(
    input: &mut Reader<'_>,
    machine: &mut RecordedMachine,
) -> Result<Control, MachineError> {
    let error = input.malformed();
    let code = input.number()?;
    if code == START {
        return read_start(input, machine);
    }
    let Ok(session) = u32::try_from(input.number()?).map(SessionId) else { return Err(error) };
    Ok(match code {
        WEIGHT => {
            let weight = u16::try_from(input.number()?).ok().and_then(Weight::new);
            Control::Weight { session, weight: weight.ok_or(error)? }
        }
        CAP => Control::Cap { session, cap: Some(read_cap(input)?) },
        NO_CAP => Control::Cap { session, cap: None },
        CONTEXT => {
            let budget = Cycles(input.number()?);
            let name = read_text(input)?.into();
            Control::Context { session, name, budget }
        }
        HOLD => Control::Hold { session },
        RELEASE => Control::Release { session },
        END_SESSION => Control::End { session },
        LEASE => Control::Lease { session, name: read_text(input)?.into() },
        END_LEASE => Control::EndLease { session, name: read_text(input)?.into() },
        REPLACE => {
            let module = read_module(input, machine)?;
            let carry = input.bytes()?.into();
            Control::Replace(Box::new(Replacement { session, module, carry }))
        }
        _ => return Err(error),
    })
}

/// The inputs of a chunk, by frame, ascending. Modules that they bring are added to the machine's
/// library.
pub(crate) fn read_inputs(
    payload: &[u8],
    machine: &mut RecordedMachine,
) -> Result<Vec<(Frame, Input)>, MachineError> {
    let mut input = Reader { bytes: payload, offset: 0 };
    let mut inputs: Vec<(Frame, Input)> = Vec::new();
    while input.offset < payload.len() {
        let error = input.malformed();
        let frame = Frame(input.number()?);
        if inputs.last().is_some_and(|(before, _)| *before >= frame) {
            return Err(error);
        }
        for _ in 0..input.count()? {
            let read = read_input(&mut input, machine)?;
            inputs.push((frame, read));
        }
    }
    Ok(inputs)
}

fn read_input(
    input: &mut Reader<'_>,
    machine: &mut RecordedMachine,
) -> Result<Input, MachineError> {
    let error = input.malformed();
    Ok(match input.number()? {
        BYTES => {
            let to = read_recipient(input)?;
            Input::Bytes { to, bytes: input.bytes()?.into() }
        }
        END => Input::End { to: read_recipient(input)? },
        STOP => Input::Stop,
        CONTROL => Input::Control(read_control(input, machine)?),
        REPLY => {
            let session = SessionId(u32::try_from(input.number()?).map_err(|_| error)?);
            let ask = AskId { session, number: input.number()?, question: input.number()? };
            let count = input.count()?;
            Input::Reply {
                ask,
                results: (0..count).map(|_| input.number()).collect::<Result<_, _>>()?,
            }
        }
        ANSWERS => {
            let lane = LaneId(u16::try_from(input.number()?).map_err(|_| error)?);
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
        put_inputs(Frame(4), &first, &mut BTreeSet::new(), &mut bytes);
        let border = bytes.len();
        let ask = AskId { session: SessionId(3), number: 7, question: u64::MAX };
        let last = [Input::Reply { ask, results: [u64::MAX, 5].into() }, Input::Stop];
        put_inputs(Frame(9), &last, &mut BTreeSet::new(), &mut bytes);
        let mut machine = RecordedMachine {
            spec: wavelock_system::MachineSpec::new(),
            modules: Vec::new(),
            inputs: Vec::new(),
        };
        let mut read_inputs = |bytes: &[u8]| super::read_inputs(bytes, &mut machine);
        let read = read_inputs(&bytes).expect("own bytes");
        let [one, two] = first;
        let [three, four] = last;
        let expected = [(4, one), (4, two), (9, three), (9, four)];
        assert_eq!(read, expected.map(|(frame, input)| (Frame(frame), input)));
        for end in 1..bytes.len() {
            assert_eq!(read_inputs(&bytes[..end]).is_ok(), end == border, "{end}");
        }
        bytes[border] = 4;
        assert!(read_inputs(&bytes).is_err(), "frames ascend");
    }
}
