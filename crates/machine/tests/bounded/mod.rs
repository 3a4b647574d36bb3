//! Seeded programs with bounds: nested loops that run a random number of rounds up to a bound,
//! branches out of several of them, calls, indirect calls, sized operations and waits.

use crate::random::Random;
use std::fmt::Write as _;

/// A line of bounds: kind, ordinal, most, function.
pub(crate) type Line = (&'static str, u32, u32, String);

/// A program and the bounds it keeps to.
pub(crate) struct Bounded {
    /// WebAssembly text with an export `main` of type (i64) -> ().
    pub(crate) text: String,
    /// Its bounds.
    pub(crate) bounds: String,
    /// The same, a line each.
    pub(crate) exact: Vec<Line>,
}

/// Lines as text.
pub(crate) fn lines(lines: &[Line]) -> String {
    let line =
        |(kind, ordinal, most, function): &Line| format!("1 {kind} {ordinal} {most} {function}\n");
    lines.iter().map(line).collect()
}

/// A program whose paths depend on its argument.
pub(crate) fn bounded(seed: u64) -> Bounded {
    generate(seed, false)
}

/// A program with one path.
pub(crate) fn single_path(seed: u64) -> Bounded {
    generate(seed, true)
}

struct Generator {
    random: Random,
    is_single: bool,
    /// The function being written: its number, and its counters.
    function: u32,
    counters: u32,
    loops: u32,
    sized: u32,
    lines: Vec<Line>,
    /// Statements left in the function.
    left: u32,
}

fn generate(seed: u64, is_single: bool) -> Bounded {
    let mut generator = Generator {
        random: Random::new(seed),
        is_single,
        function: 0,
        counters: 0,
        loops: 0,
        sized: 0,
        lines: Vec::new(),
        left: 0,
    };
    let functions = 2 + generator.random.below(4) as u32;
    let mut text = String::from(
        r#"(module
    (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
    (import "wavelock" "frame" (func $frame (result i64)))
    (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
    (memory 1)
    (global $state (mut i64) (i64.const 1))
    (func $draw (param $mask i32) (result i32)
        (global.set $state (i64.add (i64.mul (global.get $state)
            (i64.const 6364136223846793005)) (i64.const 1442695040888963407)))
        (i32.and (local.get $mask) (i32.wrap_i64 (i64.shr_u (global.get $state) (i64.const 33)))))
"#,
    );
    for function in 0..functions {
        generator.function = function;
        (generator.counters, generator.loops, generator.sized) = (0, 0, 0);
        generator.left = 12;
        let body = generator.block(0, &mut Vec::new());
        let _ = write!(text, "    (func $f{function}");
        for counter in 0..generator.counters {
            let _ = write!(text, " (local $i{counter} i32)");
        }
        let _ = writeln!(text, "\n{body})");
    }
    let last = functions - 1;
    let _ = write!(
        text,
        r#"    (table 2 funcref) (elem (i32.const 0) $f0 $f0)
    (func (export "main") (param i64)
        (global.set $state (i64.add (i64.const 77) (local.get 0))) (call $f{last})))"#
    );
    Bounded { text, bounds: lines(&generator.lines), exact: generator.lines }
}

impl Generator {
    /// The name of the function being written.
    fn name(&self) -> String {
        format!("f{}", self.function)
    }

    /// An i32 of at most `mask`, which is a power of two less one.
    fn number(&mut self, mask: u32) -> String {
        if self.is_single {
            format!("(i32.const {mask})")
        } else {
            format!("(call $draw (i32.const {mask}))")
        }
    }

    /// Statements inside `depth` loops and blocks with these labels.
    fn block(&mut self, depth: u32, labels: &mut Vec<String>) -> String {
        let mut text = String::new();
        for _ in 0..1 + self.random.below(4) {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            let statement = self.statement(depth, labels);
            let _ = writeln!(text, "{:indent$}{statement}", "", indent = 4 * depth as usize + 8);
        }
        text
    }

    fn statement(&mut self, depth: u32, labels: &mut Vec<String>) -> String {
        match self.random.below(if depth < 4 { 11 } else { 7 }) {
            0 => "(drop (i32.div_u (i32.const 100) (i32.const 7)))".to_string(),
            1 => "(drop (call $frame))".to_string(),
            2 => "(drop (call $recv (i32.const 0) (i32.const 0)))".to_string(),
            3 => self.sized_statement(),
            4 if self.function > 0 => {
                format!("(call $f{})", self.random.below(u64::from(self.function)))
            }
            5 if self.function > 0 => {
                format!("(call_indirect {})", self.number(1))
            }
            6 if !labels.is_empty() && !self.is_single => {
                let label = &labels[self.random.below(labels.len() as u64) as usize].clone();
                format!("(br_if ${label} (i32.eqz {}))", self.number(7))
            }
            7 => self.branching(depth, labels),
            8..=10 => self.repeating(depth, labels),
            _ => "(nop)".to_string(),
        }
    }

    fn sized_statement(&mut self) -> String {
        let mask = (1 << self.random.below(9)) - 1;
        let (ordinal, name) = (self.sized, self.name());
        self.sized += 1;
        match self.random.below(3) {
            // A constant needs no bound.
            0 => format!("(memory.fill (i32.const 8) (i32.const 1) (i32.const {mask}))"),
            1 => {
                self.lines.push(("size", ordinal, mask, name));
                let number = self.number(mask);
                format!(
                    "(memory.copy (i32.const 8) (i32.const 9) (i32.add (i32.const 0) {number}))"
                )
            }
            _ => {
                self.lines.push(("size", ordinal, mask, name));
                let number = self.number(mask);
                format!("(drop (call $output (i32.const 8) (i32.add (i32.const 0) {number})))")
            }
        }
    }

    fn branching(&mut self, depth: u32, labels: &mut Vec<String>) -> String {
        let label = format!("b{}_{}", depth, self.left);
        if self.is_single {
            let body = self.block(depth + 1, labels);
            return format!("(block ${label}\n{body})");
        }
        labels.push(label.clone());
        let number = self.number(3);
        let (first, second) = (self.block(depth + 1, labels), self.block(depth + 1, labels));
        let table = self.number(3);
        labels.pop();
        match self.random.below(2) {
            0 => format!("(block ${label} (if {number}\n(then {first}) (else {second})))"),
            _ => format!(
                "(block ${label} (block $z{label} (br_table $z{label} ${label} $z{label} {table}))\n{first}{second})"
            ),
        }
    }

    /// A loop of either form, bounded by how often its first instruction runs.
    fn repeating(&mut self, depth: u32, labels: &mut Vec<String>) -> String {
        let mask = (1 << (1 + self.random.below(3))) - 1;
        let (ordinal, counter, name) = (self.loops, self.counters, self.name());
        self.loops += 1;
        self.counters += 1;
        self.lines.push(("loop", ordinal, mask + 1, name));
        let label = format!("l{ordinal}");
        let set = format!("(local.set $i{counter} {})", self.number(mask));
        labels.push(format!("out{label}"));
        let body = self.block(depth + 1, labels);
        labels.pop();
        let less = format!("(i32.sub (local.get $i{counter}) (i32.const 1))");
        // A loop of the second form leaves its last round before the body; if that could fault
        // there, the worst case is longer than any run.
        let may_fault = ["div", "memory", "call $f", "call_indirect", "recv", "output"];
        let is_second = self.random.below(2) == 1
            && !(self.is_single && may_fault.iter().any(|word| body.contains(word)));
        match u32::from(is_second) {
            0 => format!(
                "{set} (block $out{label} (loop ${label}\n{body}(br_if ${label} (i32.ge_s (local.tee $i{counter} {less}) (i32.const 0)))))"
            ),
            _ => format!(
                "{set} (block $out{label} (loop ${label} (br_if $out{label} (i32.eqz (local.get $i{counter}))) (local.set $i{counter} {less})\n{body}(br ${label})))"
            ),
        }
    }
}
