//! What lowering makes of small functions, as text; and what loading refuses.

use wavelock_module::{Limits, LoadError, Module};

fn module(text: &str) -> Module {
    Module::new(&wat::parse_str(text).unwrap(), &Limits::default()).unwrap()
}

#[test]
fn a_loop_charges_in_its_branch() {
    let module = module(
        "(module (func (param i32) (result i32) (local $x i32)
            (loop $l
                (local.set $x (i32.add (i32.mul (local.get $x) (i32.const 1664525)) (i32.const 1013904223)))
                (local.set 0 (i32.sub (local.get 0) (i32.const 1)))
                (br_if $l (local.get 0)))
            (local.get $x)))",
    );
    let expected = "     0  enter cost 0 registers 5 locals 1 from r2 function 0
     2  safepoint 14
     3  i32.mul_add.const r2 r2 0x19660d 0x3c6ef35f
     5  loop.i32.ne_zero r0+-1 r0 -> 3 cost 14/1 loop 2
     8  return.one r2 link r1
";
    assert_eq!(module.disassemble(0), expected);
    assert_eq!(module.code().gap().0, 15);
}

#[test]
fn a_loop_that_begins_with_a_test_is_tested_at_its_bottom() {
    let module = module(
        "(module (func (param i32) (local $x i32)
            (block $done
                (loop $l
                    (br_if $done (i32.eqz (local.get 0)))
                    (local.set $x (i32.mul (local.get $x) (local.get 0)))
                    (local.set 0 (i32.sub (local.get 0) (i32.const 1)))
                    (br $l)))))",
    );
    // Going on costs header and body (4 + 11); leaving goes by the header.
    let expected = "     0  enter cost 0 registers 5 locals 1 from r2 function 0
     2  safepoint 4
     3  branch.if.not r0 -> 12 cost 0/11
     6  i32.mul r2 r2 r0
     7  loop.i32.ne_zero r0+-1 r0 -> 6 cost 15/0 loop 2
    10  jump.loop -> 3 cost 4
    12  return link r1
";
    assert_eq!(module.disassemble(0), expected);
}

#[test]
fn a_64_bit_counter_is_stepped_and_tested_in_one_that_is_as_long_as_two() {
    let module = module(
        "(module (func (param i64 i64)
            (loop $l
                (local.set 0 (i64.add (local.get 0) (i64.const 3)))
                (br_if $l (i64.lt_u (local.get 0) (local.get 1))))
            (loop $m
                (local.set 0 (i64.sub (local.get 0) (i64.const 1)))
                (br_if $m (i64.ne (local.get 0) (i64.const 0))))))",
    );
    let expected = "     0  enter cost 0 registers 5 locals 0 from r3 function 0
     2  safepoint 9
     3  loop.i64.lt_u r0+3 r1 -> 3 cost 9/0 loop 2
     8  safepoint 9
     9  loop.i64.ne_zero r0+-1 r0 -> 9 cost 9/0 loop 8
    14  return link r2
";
    assert_eq!(module.disassemble(0), expected);
}

#[test]
fn a_constant_and_what_follows_it_are_one_instruction_in_the_place_of_both() {
    let module = module(
        "(module (memory 1) (func $f (param i32 i32))
            (func (param i32) (result i64)
                (call $f (local.get 0) (i32.const 7))
                (i64.load offset=16 (i32.const 2048))))",
    );
    let expected = "     3  enter cost 12 registers 5 locals 0 from r2 function 1
     5  const.copy r3 0x7, r2 r0 0
     7  call function 0 at 0 r2..+2
     9  safepoint 3
    10  const.load.64 r2 0x800, r2 r2 16
    12  return.one r2 link r1
";
    assert_eq!(module.disassemble(1), expected);
}

#[test]
fn what_is_not_supported_is_named_with_its_place() {
    let bytes = wat::parse_str("(module (func (result v128) (v128.const i32x4 0 0 0 0)))").unwrap();
    let error = Module::new(&bytes, &Limits::default()).unwrap_err();
    assert!(matches!(&error, LoadError::Unsupported { feature, offset } if feature.contains("SIMD") && *offset > 8), "{error:?}");
}

#[test]
fn a_call_says_where_an_answer_of_zero_goes_on() {
    let module = module(
        r#"(module (import "host" "f" (func $f (param i32) (result i32)))
            (func (param i32)
                (if (i32.lt_s (call $f (local.get 0)) (i32.const 0)) (then (unreachable)))
                (loop $l (br_if $l (i32.eqz (call $f (local.get 0)))))
                (drop (call $f (local.get 0)))
                (if (i32.lt_s (i32.const 0) (local.get 0)) (then (unreachable)))))"#,
    );
    // Over the branch and what it leaves out; not over one to a loop header, where it might stop, nor over one that asks about something else.
    let expected = "     0  enter cost 10 registers 4 locals 0 from r2 function 1
     2  copy r2 r0
     3  call.import import 0 r2..+1, 0 -> 10 cost 4
     5  safepoint 4
     6  branch.i32.gt_s.const r2 -1 -> 10 cost 0/2
     9  unreachable
    10  safepoint 10
    11  copy r2 r0
    12  call.import import 0 r2..+1, 0 -> 15 cost 3
    14  safepoint 3
    15  branch.if.not r2 -> 11 cost 10/10 loop 10
    18  copy r2 r0
    19  call.import import 0 r2..+1, 0 -> 22 cost 6
    21  safepoint 6
    22  branch.i32.lt_s.const r0 1 -> 26 cost 0/2
    25  unreachable
    26  return link r1
";
    assert_eq!(module.disassemble(0), expected);
}

#[test]
fn what_places_the_arguments_of_an_import_calls_it_too() {
    let module = module(
        r#"(module (import "host" "f" (func $f (param i32 i32) (result i32))) (import "host" "g" (func $g (param i32)))
            (func (param i32 i32)
                (drop (call $f (local.get 0) (local.get 1)))
                (drop (call $f (local.get 1) (i32.const 7)))
                (drop (call $f (local.get 0) (i32.add (local.get 0) (local.get 1))))
                (drop (call $f (i32.const 7) (local.get 1)))
                (call $g (local.get 0))))"#,
    );
    // The call stays where it is, for those who stand at it. Not if a constant comes first, and not if there are not two arguments.
    let expected = "     0  enter cost 12 registers 6 locals 0 from r3 function 2
     2  copy.two.call r4 r1, r3 r0, 0 -> 7
     4  call.import import 0 r3..+2, 0 -> 7 cost 13
     6  safepoint 13
     7  const.copy.call r4 0x7, r3 r1, 0 -> 12
     9  call.import import 0 r3..+2, 0 -> 12 cost 15
    11  safepoint 15
    12  i32.add r4 r0 r1
    13  copy.call r3 r0, 0 -> 17
    14  call.import import 0 r3..+2, 0 -> 17 cost 13
    16  safepoint 13
    17  copy r4 r1
    18  const.32 r3 0x7
    19  call.import import 0 r3..+2, 0 -> 22 cost 11
    21  safepoint 11
    22  copy r3 r0
    23  call.import import 1 r3..+1, 0 -> 26 cost 0
    25  safepoint 0
    26  return link r2
";
    assert_eq!(module.disassemble(0), expected);
}

#[test]
fn a_load_and_an_addition_to_what_it_loads_are_one_instruction_in_the_place_of_both() {
    let module = module(
        "(module (memory 1)
            (func (param i32 i64) (result i64)
                (i32.store (local.get 0) (i32.add (i32.load (local.get 0)) (i32.const 1)))
                (i64.add (i64.add (local.get 1) (i64.load offset=8 (i32.const 2048))) (i64.load (local.get 0)))))",
    );
    let expected = "     0  enter cost 17 registers 6 locals 0 from r3 function 0
     2  load.32.add.const r4 [r0+0]
     3  i32.add.const r4 r4 0x1
     5  store.32 [r0+0] r4
     6  const.load.64.add r4 0x800, r4 r4 8
     8  i64.add r3 r1 r4
     9  load.64 r4 [r0+0]
    10  i64.add r3 r3 r4
    11  return.one r3 link r2
";
    assert_eq!(module.disassemble(0), expected);
}
