//! Regression tests: programs that lowering once fused into wrong code, found by `checks/differ`.
//! Each runs in one slice and in slices of one cycle.

#[allow(dead_code)] // Not through canonical bytes: `generated` does that.
mod drive;
#[allow(dead_code)]
mod random;

use drive::{Driver, Sliced, Whole};
use std::sync::Arc;
use wavelock_machine::{Coroutine, Extern, Session, SessionLimits, Stop};
use wavelock_module::{Limits, Module};

/// The results of the export `run`.
fn results(text: &str, arguments: &[u64], driver: &mut dyn Driver) -> Vec<u64> {
    let module = Module::from_text(text.as_bytes(), &Limits::default()).expect("a valid module");
    let module = Arc::new(module);
    let mut session = Session::new(SessionLimits::default());
    let instance = session.instantiate(Arc::clone(&module), &[]).expect("no imports");
    let Some(Extern::Function(function)) = session.export(instance, "run") else {
        panic!("no export `run`")
    };
    let mut coroutine = Coroutine::start(&session, function, arguments).expect("as many arguments");
    assert_eq!(driver.run(&mut session, &mut coroutine, &[module]), Stop::Finished);
    coroutine.results().to_vec()
}

fn check(text: &str, arguments: &[u64], expected: &[u64]) {
    assert_eq!(results(text, arguments, &mut Whole), expected, "at once");
    assert_eq!(results(text, arguments, &mut Sliced::new(1, 1)), expected, "in slices");
}

/// A constant and a copy were fused, a comparison was taken back, and the copy was then fused again
/// with the one that keeps the teed value.
#[test]
fn a_teed_value_outlives_an_if_that_sets_its_local() {
    let text = r#"(module
        (func (export "run") (param $x i32) (param $b i32) (param $d i32) (result i32) (local $a i32) (local $c i32)
            local.get $x i32.const 1 i32.add local.set $x
            i32.const 5 local.set $a
            local.get $b local.tee $c
            local.get $d i32.eqz
            if i32.const 7 local.set $c end
            local.get $c i32.add local.get $a i32.add local.get $x i32.add))"#;
    check(text, &[1, 10, 0], &[24]);
    check(text, &[1, 10, 1], &[27]);
}

/// The constant was placed in the register of the product's second operand.
#[test]
fn a_constant_plus_a_product_of_computed_operands() {
    let single = |number: f32| u64::from(number.to_bits());
    for (kind, one, fourteen) in
        [("f64", 1f64.to_bits(), 14f64.to_bits()), ("f32", single(1.0), single(14.0))]
    {
        let text = format!(
            r#"(module (func (export "run") (param $p {kind}) (result {kind})
                ({kind}.add ({kind}.const 10)
                    ({kind}.mul ({kind}.add (local.get $p) (local.get $p)) ({kind}.add (local.get $p) (local.get $p))))))"#
        );
        check(&text, &[one], &[fourteen]);
    }
}
