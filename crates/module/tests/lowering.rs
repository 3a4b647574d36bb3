//! The disassembly of small functions, and some refusals.

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
fn a_loop_with_a_head_test_is_rotated() {
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
fn unsupported_features_are_refused_with_their_offset() {
    let bytes = wat::parse_str("(module (func (result v128) (v128.const i32x4 0 0 0 0)))").unwrap();
    let error = Module::new(&bytes, &Limits::default()).unwrap_err();
    assert!(
        matches!(&error, LoadError::Unsupported { feature, offset }
            if feature.contains("SIMD") && *offset > 8),
        "{error:?}"
    );
}

#[test]
fn a_call_encodes_its_zero_path() {
    let module = module(
        r#"(module (import "host" "f" (func $f (param i32) (result i32)))
            (func (param i32)
                (if (i32.lt_s (call $f (local.get 0)) (i32.const 0)) (then (unreachable)))
                (loop $l (br_if $l (i32.eqz (call $f (local.get 0)))))
                (drop (call $f (local.get 0)))
                (if (i32.lt_s (i32.const 0) (local.get 0)) (then (unreachable)))))"#,
    );
    // Over the branch and what it leaves out; not over one to a loop header, where it might stop,
    // nor over one that asks about something else.
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
