//! What loading refuses: proposals that are not supported, by name and place; modules beyond a
//! limit, with both numbers; invalid modules.

use std::fmt::Write as _;
use wavelock_module::{Limits, LoadError, Module};

fn load(text: &str, limits: &Limits) -> Result<Module, LoadError> {
    Module::new(&wat::parse_str(text).unwrap(), limits)
}

#[test]
fn unsupported_proposals_are_refused_with_their_offset() {
    let cases = [
        ("SIMD", "(module (func (result v128) (v128.const i32x4 0 0 0 0)))"),
        ("SIMD", "(module (func (drop (v128.const i32x4 0 0 0 0))))"),
        ("threads", "(module (memory 1 1 shared))"),
        ("threads", "(module (memory 1) (func (result i32) (i32.atomic.load (i32.const 0))))"),
        ("multi", "(module (memory 1) (memory 1))"),
        ("memory64", "(module (memory i64 1))"),
        ("exceptions", "(module (tag))"),
        ("function references", "(module (type $f (func)) (func (param (ref null $f))))"),
        ("gc", "(module (type (struct)))"),
    ];
    for (name, text) in cases {
        match load(text, &Limits::default()) {
            Err(LoadError::Unsupported { feature, offset }) => {
                assert!(feature.to_lowercase().contains(&name.to_lowercase()), "{name}: {feature}");
                assert!(offset >= 8, "{name}: at {offset}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn invalid_modules_are_refused_with_message_and_offset() {
    let error = load("(module (func (result i32) i64.const 1))", &Limits::default()).unwrap_err();
    assert!(
        matches!(&error, LoadError::Invalid { message, offset }
            if message.contains("type mismatch") && *offset > 8),
        "{error:?}"
    );
    let error = Module::new(b"not wasm", &Limits::default()).unwrap_err();
    assert!(matches!(error, LoadError::Invalid { .. }), "{error:?}");
}

#[track_caller]
fn exceeds(limit: &str, text: &str, change: impl Fn(&mut Limits)) {
    let mut limits = Limits::default();
    load(text, &limits).expect("within the default limits");
    change(&mut limits);
    match load(text, &limits) {
        Err(LoadError::Limit { limit: named, found, allowed, .. }) => {
            assert_eq!(named, limit);
            assert!(found > allowed, "{limit}: found {found}, allowed {allowed}");
        }
        other => panic!("{limit}: {other:?}"),
    }
}

#[test]
fn every_limit_is_enforced_with_both_numbers() {
    let nested = format!("(module (func {}{}))", "(block ".repeat(40), ")".repeat(40));
    let pushes = format!(
        "(module (func {}{}))",
        "(i32.clz (i32.const 1)) ".repeat(100),
        "drop ".repeat(100)
    );
    exceeds("module_bytes", "(module (func))", |limits| limits.module_bytes = 16);
    exceeds("types", "(module (type (func)) (type (func (param i32))))", |limits| limits.types = 1);
    exceeds(
        "imports",
        "(module (import \"a\" \"b\" (func)) (import \"a\" \"c\" (func)))",
        |limits| limits.imports = 1,
    );
    exceeds("exports", "(module (func (export \"a\") (export \"b\")))", |limits| {
        limits.exports = 1
    });
    exceeds("functions", "(module (func) (func))", |limits| limits.functions = 1);
    exceeds(
        "globals",
        "(module (global i32 (i32.const 0)) (global i32 (i32.const 0)))",
        |limits| limits.globals = 1,
    );
    exceeds("tables", "(module (table 1 funcref) (table 1 funcref))", |limits| limits.tables = 1);
    exceeds("segments", "(module (memory 1) (data \"a\") (data \"b\"))", |limits| {
        limits.segments = 1
    });
    exceeds("segments", "(module (func $f) (elem func $f) (elem func $f))", |limits| {
        limits.segments = 1
    });
    exceeds("elements", "(module (func $f) (elem func $f $f) (elem func $f))", |limits| {
        limits.elements = 2
    });
    exceeds("function_bytes", "(module (func (drop (i64.const -1))))", |limits| {
        limits.function_bytes = 4
    });
    exceeds("locals", "(module (func (param i32) (local i32 i32)))", |limits| limits.locals = 2);
    exceeds("registers", &pushes, |limits| limits.registers = 50);
    exceeds("control_depth", &nested, |limits| limits.control_depth = 30);
    exceeds(
        "lowered_words",
        "(module (func (local i32) (local.set 0 (i32.clz (local.get 0)))))",
        |limits| limits.lowered_words = 3,
    );
    assert_eq!(Limits::TABLE.len(), 14, "a new limit needs a line above");
}

#[test]
fn more_registers_than_16_bits_are_refused() {
    let adds = format!(
        "(module (func (result i32) {}{}))",
        "(i32.clz (i32.const 1)) ".repeat(66_000),
        "i32.add ".repeat(65_999)
    );
    assert!(matches!(
        load(&adds, &Limits::default()),
        Err(LoadError::Limit { limit: "registers", allowed: 65_535, .. })
    ));
}

/// Shapes that make a careless one-pass lowering quadratic: each loads in well under the time the
/// suite gives it.
#[test]
fn hostile_shapes_load_in_linear_time() {
    let mut deep = String::from("(module (func (local i32)");
    deep.push_str(&"local.get 0 ".repeat(20_000));
    deep.push_str(&"(loop) (block) (if (i32.const 0) (then)) ".repeat(20_000));
    deep.push_str(&"drop ".repeat(20_000));
    deep.push_str("))");
    let mut sets = String::from("(module (func (local i32 i32) ");
    sets.push_str(&"local.get 0 local.get 1 ".repeat(10_000));
    sets.push_str(&"(local.set 0 (i32.const 1)) (local.set 1 (i32.const 2)) ".repeat(20_000));
    sets.push_str(&"drop ".repeat(20_000));
    sets.push_str("))");
    let results = "i32 ".repeat(900);
    let mut wide = format!("(module (type $t (func (result {results}))) (func (block (type $t)");
    wide.push_str(&"i32.const 7 ".repeat(900));
    for _ in 0..2_000 {
        let _ = write!(wide, "(br_if 0 (i32.const 0))");
    }
    let _ = write!(wide, ") {} ))", "drop ".repeat(900));
    for text in [deep, sets] {
        load(&text, &Limits::default()).unwrap();
    }
    // A branch that carries 900 values not in place copies them; after a safepoint they are in
    // place.
    let module = load(&wide, &Limits::default()).unwrap();
    assert!(module.code().words().len() < 20_000, "{}", module.code().words().len());
}
