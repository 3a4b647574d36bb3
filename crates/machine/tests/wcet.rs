//! The worst-case analysis of `wavelock-module` against runs: over programs of `wasm-smith` and
//! over generated programs with bounds (`bounded`), no call and no step is ever charged more;
//! where a program has one path, it is charged exactly that.

mod bounded;
#[allow(dead_code, reason = "other tests go through canonical bytes")]
mod drive;
mod generate;
mod observe;
mod random;

use bounded::{Bounded, bounded};
use drive::{Driver, Sliced, Whole};
use std::sync::Arc;
use wavelock_abi::{Cycles, HostOperation};
use wavelock_machine::{Coroutine, Extern, Session, SessionLimits, Stop};
use wavelock_module::wcet::{ImportCost, Span, Wcet, WcetMissing};
use wavelock_module::{
    BoundProblem, Bounds, ExportKind, FunctionType, ImportKind, Limits, Module, Peepholes,
};

/// Every fuel-limited loop of a `wasm-smith` program runs at most this often: the fuel is 2,000.
const MOST_ROUNDS: u32 = 2_001;

/// Bounds for everything in a module that asks for one.
fn bound_all(module: &Module, span: Span, most: u32) -> Bounds {
    let mut bounds = Bounds::default();
    loop {
        let wcet = Wcet::new(module, &bounds, span, &flat).expect("the bounds name what exists");
        let missing =
            (0..module.function_count()).find_map(|index| match wcet.function(index)? {
                Err(missing @ WcetMissing::Loop { .. }) => Some(missing),
                _ => None,
            });
        let Some(WcetMissing::Loop { function, ordinal, .. }) = missing else { return bounds };
        bounds.add(&format!("1 loop {ordinal} {most} #{function}")).expect("a line of bounds");
    }
}

/// What `observe` charges for its imports.
fn flat(_: &wavelock_module::Import) -> Option<ImportCost> {
    Some(ImportCost { cycles: Cycles(10), size: None, waits: false, may_end: false })
}

#[test]
fn no_generated_program_is_charged_more_than_its_worst_case() {
    let (mut calls, mut refused, mut close) = (0, 0, 0);
    for seed in 0..1_000 {
        let Some(program) = generate::program(seed) else { continue };
        let module = Module::new(&program.bytes, &Limits::default()).expect("valid");
        let bounds = bound_all(&module, Span::Whole, MOST_ROUNDS);
        let wcet = Wcet::new(&module, &bounds, Span::Whole, &flat).expect("bounds");
        let worst = |name: &str| match module.export(name) {
            Some(ExportKind::Function(index)) => wcet.function(index),
            _ => None,
        };
        let shown = observe::observe(&program, &mut Whole).expect("it runs");
        for (sequence, shown) in program.sequences.iter().zip(&shown) {
            // The start function, if there is one, is the first call.
            let own = shown
                .cycles
                .iter()
                .rev()
                .zip(sequence.iter().take(shown.observed.ends.len().saturating_sub(1)).rev());
            for (used, (export, _)) in own {
                match worst(&export.name) {
                    Some(Ok(worst)) => {
                        assert!(
                            *used <= worst,
                            "seed {seed}, {}: {used:?} of {worst:?}",
                            export.name
                        );
                        calls += 1;
                        close += u32::from(used.0 * 2 > worst.0);
                    }
                    Some(Err(_)) => refused += 1,
                    None => {}
                }
            }
        }
    }
    println!("{calls} calls, {close} within a factor of two of the worst case, {refused} refused");
    assert!(calls > 1_000 && close > 100, "{calls} calls, {close} close, {refused} refused");
}

/// A session with the program's imports at the costs of the guest interface.
fn session(module: &Arc<Module>) -> (Session, wavelock_machine::InstanceId) {
    let mut session = Session::new(SessionLimits::default());
    let mut imports = Vec::new();
    for import in module.imports() {
        let operation = HostOperation::find(&import.module, &import.name).expect("an operation");
        let ImportKind::Function(kind) = import.kind else { panic!("a function") };
        let kind: &FunctionType = &module.types()[kind as usize];
        let host = session.add_host_function(operation as u16, kind, operation.cost());
        imports.push(Extern::Function(host.expect("a cost within the limit")));
    }
    let instance = session.instantiate(Arc::clone(module), &imports).expect("linked");
    (session, instance)
}

/// Runs the export `main` and returns its cycles, and the most between two waits. Sized operations
/// are charged as the system does.
fn measure(module: &Arc<Module>, argument: u64, driver: &mut dyn Driver) -> (u64, u64) {
    let (mut session, instance) = session(module);
    let Some(Extern::Function(main)) = session.export(instance, "main") else { panic!("main") };
    let mut coroutine = Coroutine::start(&session, main, &[argument]).expect("one argument");
    let (mut step, mut since) = (0, 0);
    loop {
        match driver.run(&mut session, &mut coroutine, std::slice::from_ref(module)) {
            Stop::Host(host) => {
                let operation = HostOperation::from_code(host.number as u8).expect("an operation");
                let cost = ImportCost::of(operation);
                if cost.waits {
                    step = step.max(coroutine.used().0 - since);
                    since = coroutine.used().0;
                }
                if let Some(size) = cost.size {
                    let argument = usize::from(size.argument.expect("a size"));
                    let bytes = coroutine.host_arguments()[argument] as u32;
                    let groups = u64::from(bytes).div_ceil(8) * size.per_8_bytes;
                    let unpaid = coroutine.prepay(Cycles(groups), Cycles(u64::MAX));
                    assert_eq!(unpaid, Cycles::ZERO);
                }
                let results = operation.results().len();
                coroutine.resume(&[0][..results]);
            }
            Stop::Finished => break,
            other => panic!("{other:?}"),
        }
    }
    (coroutine.used().0, step.max(coroutine.used().0 - since))
}

/// The worst case of `main`.
fn worst(module: &Module, bounds: &str, span: Span) -> Result<u64, WcetMissing> {
    let mut all = Bounds::of(module).expect("the section has bounds");
    all.add(bounds).expect("bounds");
    let wcet =
        Wcet::new(module, &all, span, &ImportCost::of_guest_interface).expect("all bounds used");
    let Some(ExportKind::Function(main)) = module.export("main") else { panic!("main") };
    wcet.function(main).expect("it is defined").map(|cycles| cycles.0)
}

fn parse(text: &str) -> Arc<Module> {
    let module = Module::from_text(text.as_bytes(), &Limits::default());
    Arc::new(module.unwrap_or_else(|error| panic!("{error}\n{text}")))
}

/// Whether any run of a program is charged more than these bounds allow.
fn exceeds(module: &Arc<Module>, bounds: &str, runs: u64) -> bool {
    let [whole, step] = [Span::Whole, Span::Step].map(|span| worst(module, bounds, span));
    let (whole, step) = (whole.expect("a worst case"), step.expect("a worst case"));
    (0..runs).any(|argument| {
        let (used, longest) = measure(module, argument, &mut Whole);
        used > whole || longest > step
    })
}

#[test]
fn no_bounded_program_is_charged_more_than_its_worst_case() {
    let (mut runs, mut close, mut steps) = (0, 0, 0);
    for seed in 0..400 {
        let Bounded { text, bounds, .. } = bounded(seed);
        let module = parse(&text);
        let whole = worst(&module, &bounds, Span::Whole).expect("every loop has a bound");
        let step = worst(&module, &bounds, Span::Step).expect("every loop has a bound");
        assert!(step <= whole, "seed {seed}");
        for argument in 0..20 {
            let (used, longest) = measure(&module, argument, &mut Whole);
            assert!(used <= whole, "seed {seed}, argument {argument}: {used} of {whole}\n{text}");
            assert!(longest <= step, "seed {seed}, argument {argument}: {longest} of {step}");
            runs += 1;
            close += u64::from(used * 4 > whole);
            steps += u64::from(longest < used);
        }
        let mut sliced = Sliced::new(seed, 50);
        assert_eq!(measure(&module, 1, &mut sliced), measure(&module, 1, &mut Whole));
    }
    println!("{runs} runs, {close} above a quarter of the worst case, {steps} with waits");
    assert!(close > 100 && steps > 1_000, "{runs} runs, {close} close, {steps} with waits");
}

/// Planted faults: a bound that is one too small, a call that is not counted, a block left out.
#[test]
fn a_fault_in_the_worst_case_is_noticed() {
    let text = |extra: &str, call: &str| {
        parse(&format!(
            r#"(module
            (func $callee (result i32) (i32.const 3))
            (func (export "main") (param $n i64)
                (local $i i32)
                (local.set $i (i32.wrap_i64 (i64.and (local.get $n) (i64.const 7))))
                (loop $again
                    {extra} {call}
                    (br_if $again (i32.ge_s
                        (local.tee $i (i32.sub (local.get $i) (i32.const 1))) (i32.const 0))))))"#
        ))
    };
    let whole = text(
        "(if (local.get $i) (then (drop (i32.div_s (i32.const 9) (i32.const 2)))))",
        "(drop (call $callee))",
    );
    assert!(!exceeds(&whole, "1 loop 0 8 main", 16));
    assert!(exceeds(&whole, "1 loop 0 7 main", 16), "a bound that is one too small");
    let limit = |module: &Module| worst(module, "1 loop 0 8 main", Span::Whole).expect("bounded");
    let used = (0..16).map(|argument| measure(&whole, argument, &mut Whole).0).max();
    for (what, faulty) in [
        (
            "a call not counted",
            text("(if (local.get $i) (then (drop (i32.div_s (i32.const 9) (i32.const 2)))))", ""),
        ),
        ("a block left out", text("(if (local.get $i) (then))", "(drop (call $callee))")),
    ] {
        assert!(used > Some(limit(&faulty)), "{what}: {used:?} of {}", limit(&faulty));
    }
    // In generated programs too: most bounds matter to some run.
    let (mut planted, mut noticed) = (0, 0);
    for seed in 0..120 {
        let Bounded { text, exact, .. } = bounded::single_path(seed);
        let module = parse(&text);
        let last = format!("f{}", module.code().functions().len() - 3);
        for (index, (kind, ordinal, most, function)) in exact.iter().enumerate() {
            // The last function is called, and all of it runs.
            if *kind != "loop" || *function != last {
                continue;
            }
            let mut lines = exact.clone();
            lines[index] = (*kind, *ordinal, most - 1, function.clone());
            planted += 1;
            noticed += u64::from(exceeds(&module, &bounded::lines(&lines), 1));
        }
    }
    assert!(planted > 100 && noticed == planted, "{noticed} of {planted} faults were noticed");
}

/// Where there is one path, the worst case is what a run is charged, for every lowering.
#[test]
fn one_path_is_charged_exactly_its_worst_case() {
    let mut loops = 0;
    for seed in 0..200 {
        let Bounded { text, bounds, exact } = bounded::single_path(seed);
        let bytes = wat::parse_str(&text).expect("a valid text");
        for peepholes in [Peepholes::ALL, Peepholes::NONE] {
            let module = Module::with_peepholes(&bytes, &Limits::default(), peepholes);
            let module = Arc::new(module.expect("valid"));
            let (used, step) = measure(&module, 0, &mut Whole);
            assert_eq!(worst(&module, &bounds, Span::Whole), Ok(used), "seed {seed}\n{text}");
            assert_eq!(worst(&module, &bounds, Span::Step), Ok(step), "seed {seed}\n{text}");
        }
        loops += exact.len();
    }
    assert!(loops > 300, "only {loops} bounds");
}

fn missing(text: &str) -> String {
    let module = parse(text);
    match worst(&module, "", Span::Whole) {
        Ok(cycles) => format!("{cycles} cycles"),
        Err(missing) => missing.text(&module).to_string(),
    }
}

#[test]
fn what_has_no_worst_case_is_refused_by_name() {
    assert_eq!(
        missing(
            r#"(module (func $spin (loop $l (br $l))) (func (export "main") (param i64) (call $spin)))"#
        ),
        "loop 0 of `spin` (byte 0x26) has no bound: add `1 loop 0 MOST spin`"
    );
    assert_eq!(
        missing(
            r#"(module (func $down (param i64) (call $up (local.get 0)))
            (func $up (export "main") (param i64) (call $down (local.get 0))))"#
        ),
        "`down` can call itself through `up`"
    );
    assert_eq!(
        missing(
            r#"(module (func $self (export "main") (param i64) (return_call $self (local.get 0))))"#
        ),
        "`self` can call itself"
    );
    assert_eq!(
        missing(
            r#"(module (type $t (func (param i64))) (table 1 funcref) (elem (i32.const 0) $main)
            (func $main (export "main") (type $t) (call_indirect (type $t) (local.get 0) (i32.const 0))))"#
        ),
        "`main` can call itself through an indirect call"
    );
    assert_eq!(
        missing(
            r#"(module (memory 1) (func (export "main") (param i64)
            (drop (memory.grow (i32.const 1)))
            (memory.fill (i32.const 0) (i32.const 0) (i32.wrap_i64 (local.get 0)))))"#
        ),
        "sized operation 1 of `main` (byte 0x33) has no bound: declare a maximum of the memory or \
         table, or add `1 size 1 MOST main`"
    );
    // An indirect call costs as much as the longest function of its type that a table can hold.
    let indirect = |other: &str| {
        missing(&format!(
            r#"(module (type $t (func)) (table 2 funcref) (elem (i32.const 0) $short {other})
            (func $short) (func $long (drop (i32.div_s (i32.const 1) (i32.const 1))))
            (func (export "main") (param i64)
                (call_indirect (type $t) (i32.wrap_i64 (local.get 0)))))"#
        ))
    };
    assert_eq!(indirect(""), "14 cycles");
    assert_eq!(indirect("$long"), "27 cycles");
}

#[test]
fn bounds_are_read_from_the_section_and_checked() {
    let text = |section: &str| {
        parse(&format!(
            r#"(module (@custom "wavelock.bounds" "{section}") (func $serve (export "main") (param i64)
                (loop $l (br_if $l (i64.ne (i64.const 0)
                    (local.tee 0 (i64.sub (local.get 0) (i64.const 1))))))))"#
        ))
    };
    let with = |section: &str| worst(&text(section), "", Span::Whole);
    let (one, nine) = (with("1 loop 0 1 main"), with("; a comment\\n\\n1 loop 0 9 serve\\00"));
    assert_eq!(nine.map(|nine| nine - 8 * 8), one, "a round is eight cycles");
    let refused = |section: &str, lines: &str| {
        let module = text(section);
        let read = Bounds::of(&module).and_then(|mut bounds| {
            bounds.add(lines)?;
            Wcet::new(&module, &bounds, Span::Whole, &ImportCost::of_guest_interface)
        });
        read.expect_err("refused").to_string()
    };
    for (section, lines, expected) in [
        ("2 loop 0 1 main", "", "bounds, line 1: version `2`; this Wavelock reads 1"),
        ("\\ff", "", "bounds, line 1: no UTF-8 text of at most 1048576 bytes"),
        ("", "\n1 loop 0 0 main", "bounds, line 2: a loop that is entered runs at least once"),
        ("", "1 loop 1 5 main", "bounds, line 1: loop 1 of `serve`, which has 1 loops"),
        ("", "1 size 0 5 #0", "bounds, line 1: size 0 of `serve`, which has 0 sized operations"),
        ("", "1 loop 0 5 other", "bounds, line 1: the module defines no function `other`"),
        (
            "",
            "1 loop 5 main",
            "bounds, line 1: a line is `1 loop ORDINAL MOST FUNCTION` or `1 size ORDINAL MOST FUNCTION`",
        ),
    ] {
        assert_eq!(refused(section, lines), expected);
    }
    assert_eq!(
        Bounds::default().add("1 loop 0 0 f").map_err(|error| error.problem),
        Err(BoundProblem::Zero)
    );
}

/// A function that serves for ever has a step, if each round waits.
#[test]
fn a_server_needs_no_bound_for_its_loop() {
    let server = |wait: &str| {
        parse(&format!(
            r#"(module (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
            (import "wavelock" "try_recv" (func $try_recv (param i32 i32) (result i32)))
            (memory 1)
            (func (export "main") (param i64)
                (loop $serve
                    (drop (call ${wait} (i32.const 0) (i32.const 0)))
                    (drop (i32.div_s (i32.const 9) (i32.const 4)))
                    (br $serve))))"#
        ))
    };
    let module = server("recv");
    assert!(matches!(worst(&module, "", Span::Whole), Err(WcetMissing::Loop { .. })));
    let step = worst(&module, "", Span::Step).expect("each round waits");
    // drop, two constants, div_s, drop, br, two constants, call of two arguments, recv.
    assert_eq!(step, 1 + 2 + 10 + 1 + 2 + 2 + 10 + 20);
    assert!(matches!(worst(&server("try_recv"), "", Span::Step), Err(WcetMissing::Loop { .. })));
}
