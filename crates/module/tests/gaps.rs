//! Costs and gaps as computed by lowering: blocks, the longest path between safepoints, and the
//! safepoints it inserts.

use wavelock_abi::MAX_GAP;
use wavelock_module::{Limits, Module, Op, Word};

fn module(text: &str) -> Module {
    Module::new(&wat::parse_str(text).unwrap(), &Limits::default()).unwrap()
}

fn gap(text: &str) -> u64 {
    module(text).code().gap().0
}

/// How many `safepoint` instructions the code has.
fn safepoints(module: &Module) -> usize {
    let (words, mut at, mut count) = (module.code().words(), 0, 0);
    while at < words.len() {
        let word = Word(words[at]);
        let op = word.op().unwrap();
        count += usize::from(op == Op::Safepoint);
        at += op.form().words() as usize;
        if op == Op::BranchTable {
            at += word.bc() as usize + 1;
        }
    }
    count
}

#[test]
fn straight_line_code_is_one_block() {
    // get, const, add, set: 4.
    assert_eq!(
        gap("(module (func (param i32) (local.set 0 (i32.add (local.get 0) (i32.const 1)))))"),
        4
    );
}

#[test]
fn the_longer_branch_determines_the_gap() {
    // if: get 1 + if 2; then: 2 nops of 2 (const, drop); else: 4 of 2. After: 2.
    let text = "(module (func (param i32)
        (if (local.get 0)
            (then (drop (i32.const 1)) (drop (i32.const 1)))
            (else (drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1))))
        (drop (i32.const 1))))";
    assert_eq!(gap(text), 3 + 8 + 2);
}

#[test]
fn calls_and_loops_end_a_gap() {
    // Before the call: 10 + 8; after it 6.
    let text = "(module (func $f)
        (func (drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1))
            (call $f)
            (drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1))))";
    assert_eq!(gap(text), 18);
    // The header is a safepoint, so what is before and inside does not add up: 10 before, 1 + 2
    // inside, nothing after.
    let text = "(module (func (param i32)
        (drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1))
        (loop (br_if 0 (local.get 0)))))";
    assert_eq!(gap(text), 10);
}

#[test]
fn long_blocks_get_safepoints() {
    let text = format!(
        "(module (func (param i32) {}))",
        "(local.set 0 (i32.add (local.get 0) (i32.const 1)))".repeat(5_000)
    );
    let module = module(&text);
    assert!(module.code().gap() <= MAX_GAP);
    assert!(
        module.code().gap().0 > MAX_GAP.0 - 8,
        "safepoints are not denser than needed: {:?}",
        module.code().gap()
    );
    assert_eq!(safepoints(&module), 20_000 / MAX_GAP.0 as usize);
}

#[test]
fn a_merge_point_keeps_the_longest_gap() {
    // 300 diamonds in a row, each 3 + 20 or 3 + 2: the longest way goes through every long arm.
    let arm = "(drop (i32.const 1))".repeat(10);
    let diamond = format!("(if (local.get 0) (then {arm}) (else (drop (i32.const 1))))");
    let module = module(&format!("(module (func (param i32) {}))", diamond.repeat(300)));
    assert!(
        module.code().gap() <= MAX_GAP && module.code().gap().0 > MAX_GAP.0 - 32,
        "{:?}",
        module.code().gap()
    );
    // A branch out of the middle of each block, to one end.
    let exits = format!("(block {})", "(br_if 0 (local.get 0)) (drop (i32.const 1))".repeat(4_000));
    let module = self::module(&format!("(module (func (param i32) {exits}))"));
    assert!(module.code().gap() <= MAX_GAP);
}

#[test]
fn every_block_fits_its_field() {
    let locals = "i32 ".repeat(31_000);
    let module = module(&format!("(module (func (local {locals}) {}))", "nop ".repeat(10)));
    assert_eq!(module.code().gap().0, 31_000 / 16);
}
