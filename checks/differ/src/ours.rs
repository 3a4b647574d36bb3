//! Runs a program on our machine: in one slice, in slices, serialized and restored, by instruction,
//! as native code, or in a mix of tiers.
//!
//! The law checked here: all ways give the same result, including cycles and digest, also if a call
//! runs out of cycles. Elsewhere: the oracles (`compiler`, `interpreter`), what is compared
//! (`program`).

use crate::coverage::Coverage;
use crate::host::Asked;
use crate::program::{
    Call, Ended, IMPORTED_GLOBAL, MEMORY_PAGES, Observed, Program, TABLE_ELEMENTS, Trap,
};
use crate::random::Random;
use std::sync::Arc;
use wavelock_abi::{Cycles, FaultCode};
use wavelock_compiled::CompiledTier;
use wavelock_machine::{
    Coroutine, Digest, Extern, FunctionAddress, InstanceId, LinkError, Session, SessionLimits,
    Stepped, Stepper, Stop, coroutine_digest, decode, encode, run, run_tiered, session_digest,
};
use wavelock_module::{ImportKind, Module};

const LIMITS: SessionLimits = SessionLimits {
    stack_bytes: 1 << 20,
    session_stack_bytes: 1 << 30,
    memory_pages: MEMORY_PAGES,
    table_elements: TABLE_ELEMENTS,
    instances: 1,
};

/// Maximum number of single-stepped instructions of a program; the rest runs in one slice.
const MOST_STEPS: u64 = 3_000;
/// Maximum total size of snapshots of one program.
const MOST_SNAPSHOT_BYTES: usize = 512 << 10;

/// How a coroutine is driven.
pub(crate) enum Mode<'a> {
    Whole,
    /// Slices of random lengths.
    Sliced,
    /// Slices; after some the state is serialized and the run resumes from the bytes.
    Restored,
    /// One instruction at a time, counting each.
    Stepped(&'a mut Coverage),
    /// Native code, in one slice.
    Native(&'a mut CompiledTier),
    /// Slices, each in a random tier, some serialized.
    Tiers(&'a mut CompiledTier),
}

/// The result of a program and its cost: the same in every mode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shown {
    pub(crate) observed: Observed,
    /// Cycles of each call.
    pub(crate) cycles: Vec<u64>,
    pub(crate) digest: Digest,
}

impl Shown {
    /// The first difference between two runs of our own machine.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        if self.observed.ends != other.observed.ends {
            return Some(format!(
                "ends {:x?}, at once {:x?}",
                self.observed.ends, other.observed.ends
            ));
        }
        if self.cycles != other.cycles {
            return Some(format!("cycles {:?}, at once {:?}", self.cycles, other.cycles));
        }
        if let Some(text) = self.observed.difference(&other.observed) {
            return Some(text);
        }
        (self.digest != other.digest).then(|| "another digest".to_owned())
    }
}

/// One run of a program.
struct Run<'a> {
    program: &'a Program,
    module: &'a Arc<Module>,
    mode: Mode<'a>,
    random: Random,
    /// Host calls so far.
    host_calls: u64,
    steps: u64,
    snapshot_bytes: usize,
}

/// Runs a program; an error if it cannot be instantiated for another reason than a trap.
pub(crate) fn observe(
    program: &Program,
    module: &Arc<Module>,
    mode: Mode<'_>,
    seed: u64,
) -> Result<Shown, String> {
    let mut run = Run {
        program,
        module,
        mode,
        random: Random::new(seed),
        host_calls: 0,
        steps: 0,
        snapshot_bytes: 0,
    };
    run.run()
}

impl Run<'_> {
    fn run(&mut self) -> Result<Shown, String> {
        let mut session = Session::new(LIMITS);
        let imports = self.imports(&mut session)?;
        let mut shown = Shown {
            observed: Observed::default(),
            cycles: Vec::new(),
            digest: session_digest(&mut session),
        };
        let instance = match session.instantiate(Arc::clone(self.module), &imports) {
            Ok(instance) => instance,
            Err(LinkError::Segment { code, .. }) => {
                shown.observed.ends.push(Ended::Trapped(trap(code)?));
                return Ok(shown);
            }
            Err(error) => return Err(format!("our machine does not link it: {error}")),
        };
        let start = match session.start_function(instance) {
            Some(start) => self.call(&mut session, instance, start, &[], &mut shown.cycles)?,
            None => Ended::Returned(Vec::new()),
        };
        let started = matches!(start, Ended::Returned(_));
        shown.observed.ends.push(start);
        if started && self.calls(&mut session, instance, &mut shown)? {
            self.finish(&session, instance, &mut shown.observed);
        }
        shown.digest = session_digest(&mut session);
        Ok(shown)
    }

    /// Makes the calls; returns whether the engines were still comparable at the last one.
    fn calls(
        &mut self,
        session: &mut Session,
        instance: InstanceId,
        shown: &mut Shown,
    ) -> Result<bool, String> {
        for Call { export, arguments } in &self.program.calls {
            let Some(Extern::Function(function)) = session.export(instance, export) else {
                return Err(format!("export {export} is missing"));
            };
            let end = self.call(session, instance, function, arguments, &mut shown.cycles)?;
            let open = end.is_open();
            shown.observed.ends.push(end);
            if open {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn imports(&self, session: &mut Session) -> Result<Vec<Extern>, String> {
        let mut imports = Vec::new();
        for (number, import) in self.module.imports().iter().enumerate() {
            let limit = |error: wavelock_machine::SessionError| {
                format!("our machine does not link it: {error}")
            };
            imports.push(match &import.kind {
                ImportKind::Function(kind) => {
                    let kind = &self.module.types()[*kind as usize];
                    let function = session.add_host_function(number as u16, kind, Cycles(10));
                    Extern::Function(function.map_err(limit)?)
                }
                ImportKind::Table(kind) => Extern::Table(session.add_table(*kind).map_err(limit)?),
                ImportKind::Memory(kind) => {
                    Extern::Memory(session.add_memory(*kind).map_err(limit)?)
                }
                ImportKind::Global(kind) => {
                    let value = if kind.value.is_reference() { 0 } else { IMPORTED_GLOBAL };
                    Extern::Global(session.add_global(*kind, value))
                }
            });
        }
        Ok(imports)
    }

    fn call(
        &mut self,
        session: &mut Session,
        instance: InstanceId,
        function: FunctionAddress,
        arguments: &[u64],
        cycles: &mut Vec<u64>,
    ) -> Result<Ended, String> {
        let kinds = session.function_type(function).results().to_vec();
        let mut coroutine = Coroutine::start(session, function, arguments)
            .map_err(|error| format!("not started: {error}"))?;
        let mut stepper = Stepper::default();
        let end = loop {
            match self.drive(session, &mut coroutine, &mut stepper) {
                Stop::OutOfCycles { .. } => break Ended::Exhausted,
                Stop::Host(host) => {
                    if !self.answer(session, instance, &mut coroutine, host.number) {
                        break Ended::Exited;
                    }
                }
                Stop::Fault(fault) => break Ended::Trapped(trap(fault.code)?),
                Stop::Finished => {
                    let words = kinds.iter().zip(coroutine.results());
                    let show =
                        |reference, word: u64| if reference { u64::from(word != 0) } else { word };
                    break Ended::Returned(
                        words.map(|(kind, word)| show(kind.is_reference(), *word)).collect(),
                    );
                }
            }
        };
        cycles.push(coroutine.used().0);
        Ok(end)
    }

    /// Completes a host call; false if it does not return.
    fn answer(
        &mut self,
        session: &mut Session,
        instance: InstanceId,
        coroutine: &mut Coroutine,
        number: u16,
    ) -> bool {
        let import = &self.module.imports()[usize::from(number)];
        let ImportKind::Function(kind) = import.kind else {
            unreachable!("host functions are imports")
        };
        let kind = &self.module.types()[kind as usize];
        let memory = crate::first_memory(self.module).and_then(|name| {
            match session.export(instance, name) {
                Some(Extern::Memory(memory)) => Some(memory),
                _ => None,
            }
        });
        let asked = Asked {
            module: &import.module,
            name: &import.name,
            arguments: coroutine.host_arguments(),
            results: kind.results().len(),
            before: self.host_calls,
            memory: memory.map_or(&[], |memory| session.memory(memory).bytes()),
        };
        let reply = asked.reply();
        self.host_calls += 1;
        if let Some(memory) = memory {
            for (at, bytes) in &reply.writes {
                let _ = session.memory_mut(memory).write(*at, bytes);
            }
        }
        if reply.exits {
            return false;
        }
        let words = kind.results().iter().zip(&reply.results);
        let words: Vec<u64> = words
            .map(|(kind, word)| match kind {
                kind if kind.is_reference() => 0,
                kind if kind.is_narrow() => word & 0xffff_ffff,
                _ => *word,
            })
            .collect();
        coroutine.resume(&words);
        true
    }

    /// Runs until the next stop other than a slice's end; out of cycles only at the program's
    /// limit.
    fn drive(
        &mut self,
        session: &mut Session,
        coroutine: &mut Coroutine,
        stepper: &mut Stepper,
    ) -> Stop {
        loop {
            let left = self.program.most_cycles.saturating_sub(coroutine.used().0);
            let whole = matches!(self.mode, Mode::Whole | Mode::Native(_));
            // Long programs are split into as many slices as short ones.
            let scale =
                [1, 4, 40, 4_096, 1 + self.program.most_cycles / 16][self.random.below(5) as usize];
            let scale = scale.max(coroutine.used().0 / 64);
            let bound = if whole { left } else { left.min(1 + self.random.below(scale)) };
            let stop = self.slice(session, coroutine, stepper, bound);
            if let Mode::Restored | Mode::Tiers(_) = self.mode
                && self.snapshot_bytes < MOST_SNAPSHOT_BYTES
                && self.random.below(4) == 0
            {
                self.through_bytes(session, coroutine);
            }
            if !matches!(stop, Stop::OutOfCycles { .. }) || bound == left {
                return stop;
            }
        }
    }

    /// One slice, checked: it ends within its bound and less than `G`.
    fn slice(
        &mut self,
        session: &mut Session,
        coroutine: &mut Coroutine,
        stepper: &mut Stepper,
        bound: u64,
    ) -> Stop {
        let (before, gap) = (coroutine.used().0, session.gap().0);
        let stop = match &mut self.mode {
            Mode::Stepped(coverage) if self.steps < MOST_STEPS => {
                let end = before + bound;
                loop {
                    self.steps += 1;
                    coverage.count(session, coroutine);
                    match stepper.step(
                        session,
                        coroutine,
                        Cycles(end.saturating_sub(coroutine.used().0)),
                    ) {
                        Stepped::Moved => {}
                        Stepped::Stopped(stop) | Stepped::Over(stop) => break stop,
                    }
                }
            }
            Mode::Native(tier) => run_tiered(session, coroutine, Cycles(bound), *tier),
            Mode::Tiers(tier) if self.random.below(4) != 0 => {
                run_tiered(session, coroutine, Cycles(bound), *tier)
            }
            _ => run(session, coroutine, Cycles(bound)),
        };
        let used = coroutine.used().0 - before;
        assert!(used < bound + gap.max(1), "a slice of {bound} was charged {used}, G = {gap}");
        if let Stop::OutOfCycles { .. } = stop {
            assert!(used >= bound, "stopped for want of cycles after {used} of {bound}");
        }
        stop
    }

    /// Serializes session and coroutine and replaces them by the decoded ones.
    fn through_bytes(&mut self, session: &mut Session, coroutine: &mut Coroutine) {
        let bytes = encode(session, &[&*coroutine]);
        let decoded = decode(&bytes, std::slice::from_ref(self.module), session.limits());
        let (mut other, mut coroutines) =
            decoded.unwrap_or_else(|error| panic!("what was encoded does not decode: {error}"));
        let twin = coroutines.pop().expect("one coroutine was encoded");
        assert_eq!(encode(&other, &[&twin]), bytes, "encode(decode(bytes)) differs");
        assert_eq!(coroutine_digest(&other, &twin), coroutine_digest(session, coroutine));
        assert_eq!(
            session_digest(&mut other),
            session_digest(session),
            "a decoded session's digest"
        );
        (*session, *coroutine) = (other, twin);
        self.snapshot_bytes += bytes.len();
    }

    fn finish(&self, session: &Session, instance: InstanceId, observed: &mut Observed) {
        for export in self.module.exports() {
            match session.export(instance, &export.name) {
                Some(Extern::Global(global)) => {
                    let (kind, word) = (session.global_type(global).value, session.global(global));
                    observed.globals.push(if kind.is_reference() {
                        u64::from(word != 0)
                    } else {
                        word
                    });
                }
                Some(Extern::Memory(memory)) => {
                    observed.memories.push(session.memory(memory).bytes().to_vec())
                }
                Some(Extern::Table(table)) => {
                    let elements = session.table(table).elements();
                    observed.tables.push(elements.iter().map(|element| *element == 0).collect());
                }
                _ => {}
            }
        }
    }
}

fn trap(code: FaultCode) -> Result<Trap, String> {
    Ok(match code {
        FaultCode::Unreachable => Trap::Unreachable,
        FaultCode::MemoryOutOfBounds => Trap::Memory,
        FaultCode::TableOutOfBounds | FaultCode::UndefinedElement => Trap::Table,
        FaultCode::UninitializedElement => Trap::Null,
        FaultCode::IndirectCallTypeMismatch => Trap::Signature,
        FaultCode::IntegerDivideByZero => Trap::Division,
        FaultCode::IntegerOverflow => Trap::Overflow,
        FaultCode::InvalidConversion => Trap::Conversion,
        FaultCode::StackExhausted => Trap::Stack,
        other => return Err(format!("an unexpected fault: {}", other.text())),
    })
}
