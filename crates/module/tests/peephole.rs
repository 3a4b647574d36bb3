//! The peephole pass: every row has a function that it changes, and nothing is fused across a
//! label.

use wavelock_module::{Limits, Module, Peepholes};

fn lowered(text: &str, peepholes: Peepholes) -> String {
    let bytes = wat::parse_str(text).unwrap();
    let module = Module::with_peepholes(&bytes, &Limits::default(), peepholes).unwrap();
    (0..module.code().functions().len()).map(|function| module.disassemble(function)).collect()
}

/// A row, a function body with parameters i32 i32 f64 f64, and an instruction that only the row
/// makes.
const ROWS: &[(&str, &str, &str)] = &[
    (
        "compare and branch",
        "(if (i32.lt_u (local.get 0) (local.get 1)) (then nop))",
        "branch.i32.le_u r1 r0",
    ),
    (
        "step and branch back",
        "(loop $l (local.set 0 (i32.sub (local.get 0) (i32.const 1))) (br_if $l (local.get 0)))",
        "loop.i32.ne_zero r0+-1",
    ),
    (
        "64-bit step and branch back",
        "(local i64) (loop $l (local.set 4 (i64.sub (local.get 4) (i64.const 1))) (br_if $l (i64.ne (local.get 4) (i64.const 0))))",
        "loop.i64.ne_zero r5+-1",
    ),
    (
        "result into a local",
        "(local.set 0 (i32.mul (local.get 0) (local.get 1)))",
        "i32.mul r0 r0 r1",
    ),
    (
        "load from an address plus a constant",
        "(drop (i32.load offset=4 (i32.add (local.get 0) (i32.const 8))))",
        "load.32.plus r5 [r0+0x8+4]",
    ),
    (
        "multiply and add a constant",
        "(drop (i32.add (i32.mul (local.get 0) (i32.const 3)) (i32.const 5)))",
        "i32.mul_add.const r5 r0 0x3 0x5",
    ),
    (
        "add three",
        "(drop (i32.add (i32.add (local.get 0) (local.get 1)) (local.get 1)))",
        "i32.add_add r5 r0 r1 r1",
    ),
    (
        "shift and exclusive or",
        "(drop (i32.xor (local.get 1) (i32.rotl (local.get 0) (i32.const 7))))",
        "i32.xor_rotl r5 r1 r0 0x7",
    ),
    (
        "multiply and add floats",
        "(drop (f64.add (f64.mul (local.get 2) (local.get 3)) (local.get 3)))",
        "f64.mul_add r5 r2 r3 r3",
    ),
    (
        "load from a constant address",
        "(drop (i64.load offset=16 (i32.const 2048)))",
        "const.load.64 r5 [0x800+16]",
    ),
    ("constant and copy", "(call $f (local.get 0) (i32.const 7))", "const.copy r6 0x7, r5 r0"),
    ("two copies", "(call $f (local.get 0) (local.get 1))", "copy.two r6 r1, r5 r0"),
];

#[test]
fn every_row_of_the_table_applies() {
    let names: Vec<&str> = Peepholes::names().collect();
    assert_eq!(
        names,
        ROWS.iter().map(|row| row.0).collect::<Vec<_>>(),
        "every row of the table has a function here"
    );
    for (name, body, instruction) in ROWS {
        let text = format!(
            "(module (memory 1) (func $f (param i32 i32)) (func (param i32 i32 f64 f64) {body}))"
        );
        let (with, without) =
            (lowered(&text, Peepholes::ALL), lowered(&text, Peepholes::ALL.without(name)));
        assert!(with.contains(instruction), "{name}:\n{with}");
        assert!(!without.contains(instruction), "{name} is switched off:\n{without}");
    }
}

/// The shape that once crashed release builds: an `if` may change the local whose copy comes just
/// before it.
#[test]
fn nothing_is_fused_across_a_label() {
    let text = "(module (func (param $x i32) (param $b i32) (param $d i32) (result i32) (local $a i32) (local $c i32)
        local.get $x i32.const 1 i32.add local.set $x
        i32.const 5 local.set $a
        local.get $b local.tee $c
        local.get $d i32.eqz
        if i32.const 7 local.set $c end
        local.get $c i32.add local.get $a i32.add local.get $x i32.add))";
    let expected = "     0  enter cost 12 registers 8 locals 2 from r4 function 0
     2  i32.add.const r0 r0 0x1
     4  const.copy r4 0x5, r5 r1
     6  i32.eq.const r7 r2 0x0
     8  copy r6 r5
     9  branch.if.not r7 -> 13 cost 6/8
    12  const.32 r5 0x7
    13  i32.add_add r6 r6 r5 r4
    15  i32.add r6 r6 r0
    16  return.one r6 link r3
";
    assert_eq!(lowered(text, Peepholes::ALL), expected);
}

/// A value that a conditional branch carries stays an operand: what made it must still write its
/// register.
#[test]
fn a_result_with_two_readers_is_kept() {
    let text = "(module (func (param i32 i32) (result i32)
        (block $out (result i32)
            (i32.const 3)
            (br_if $out (i32.mul (local.get 0) (local.get 1)) (local.get 0))
            (i32.add))))";
    let code = lowered(text, Peepholes::ALL);
    assert!(code.contains("i32.mul r4 r0 r1") && code.contains("copy r3 r4"), "{code}");
}
