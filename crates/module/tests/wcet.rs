//! The worst-case analysis takes linear time on every shape of module, and on nested loops with
//! edges out of all of them; it uses no host stack in proportion to depth.

#[allow(dead_code, reason = "the shapes that are refused are not loaded here")]
mod shapes;
mod stopwatch;

use shapes::SHAPES;
use stopwatch::is_linear;
use wavelock_module::wcet::{ImportCost, Span, Wcet};
use wavelock_module::{Bounds, Limits, Module};

/// Host stack that an analysis may use, whatever the module.
const STACK: usize = 64 << 10;

/// Analyses both spans.
fn analyse(module: &Module, bounds: &Bounds) -> [Wcet; 2] {
    [Span::Whole, Span::Step].map(|span| {
        Wcet::new(module, bounds, span, &ImportCost::of_guest_interface).expect("bounds are used")
    })
}

#[test]
fn every_shape_is_analysed_in_linear_time() {
    for shape in SHAPES {
        let modules = [1, 4].map(|times| {
            let bytes = (shape.make)((shape.fixed + 16_000 * times).min(shape.most));
            Module::new(&bytes, &Limits::default()).expect(shape.name)
        });
        let bounds = Bounds::default();
        let work = |times: usize| _ = analyse(&modules[usize::from(times > 1)], &bounds);
        if let Err([small, large]) = is_linear(work) {
            panic!("{}: {small:?} become {large:?} with four times the bytes", shape.name);
        }
    }
}

fn parse(text: &str) -> Module {
    let bytes = wat::parse_str(text).expect("a valid text");
    Module::new(&bytes, &Limits::default()).expect("valid")
}

/// Functions of `depth` nested loops whose innermost branches to the start and past the end of all
/// of them. Every loop has a bound.
fn deep(functions: usize, depth: usize) -> (Module, Bounds) {
    let mut text = String::from("(module\n");
    let mut bounds = Bounds::default();
    for function in 0..functions {
        text.push_str("(func (param i32)");
        (0..depth).for_each(|_| text.push_str("(block (loop "));
        text.push_str("(block (br_table");
        (0..2 * depth).for_each(|label| text.push_str(&format!(" {label}")));
        text.push_str(" (local.get 0)))");
        (0..depth).for_each(|_| text.push_str("))"));
        text.push_str(")\n");
        for ordinal in 0..depth {
            bounds.add(&format!("1 loop {ordinal} 2 #{function}")).expect("a bound");
        }
    }
    text.push(')');
    (parse(&text), bounds)
}

#[test]
fn edges_out_of_many_loops_are_analysed_in_linear_time() {
    let deeper = [deep(60, 1_200), deep(60, 4_800)];
    let work = |times: usize| {
        let (module, bounds) = &deeper[usize::from(times > 1)];
        let [whole, _] = analyse(module, bounds);
        // 2 rounds of 2 rounds of ...: more than can be counted.
        assert!(matches!(whole.function(0), Some(Err(_))));
    };
    if let Err([small, large]) = is_linear(work) {
        panic!("{small:?} become {large:?} with four times the depth");
    }
}

#[test]
fn depth_uses_no_host_stack() {
    // A chain of calls as long as the limit of functions allows it to be interesting.
    let mut text = String::from("(module (func)");
    for function in 0..50_000 {
        text.push_str(&format!("(func (call {function}))"));
    }
    text.push(')');
    let chain = parse(&text);
    let (loops, bounds) = deep(1, 4_000);
    let thread = std::thread::Builder::new().stack_size(STACK);
    let done = thread.spawn(move || {
        let [whole, step] = analyse(&chain, &Bounds::default());
        assert_eq!(whole, step);
        // A call and an entry each.
        let cycles = |index| whole.function(index).and_then(Result::ok).map(|found| found.0);
        assert_eq!(cycles(50_000), Some(50_000 * 8));
        analyse(&loops, &bounds).len()
    });
    assert_eq!(done.expect("a thread").join().expect("no overflow"), 2);
}
