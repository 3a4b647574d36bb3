//! Loading is linear in time and memory for every shape of `shapes`. Memory and allocations are
//! counted; time is compared between two sizes, since a quadratic part makes four times the bytes
//! take sixteen times as long.

mod counting;
mod shapes;
mod stopwatch;

use shapes::{SHAPES, Shape, shape};
use stopwatch::{SHORT, is_linear, time};
use wavelock_module::{Limits, LoadError, Module};

/// Bytes of the smaller module, beside what every module of the shape has; the larger has four
/// times as many.
const SMALL: usize = 16_000;

/// Bytes of the largest module.
const MOST_BYTES: usize = 4 << 20;

fn module(shape: &Shape, times: usize) -> Vec<u8> {
    (shape.make)(shape.fixed + SMALL * times)
}

/// Two modules, the second four times as large, and large enough that loading it takes a while.
fn comparable(shape: &Shape) -> [Vec<u8>; 2] {
    let mut times = 1;
    loop {
        let modules = [module(shape, times), module(shape, 4 * times)];
        let is_largest = shape.fixed + 8 * times * SMALL > shape.most.min(MOST_BYTES);
        if is_largest || time(|| _ = Module::new(&modules[1], &Limits::default())) > 2 * SHORT {
            return modules;
        }
        times *= 2;
    }
}

#[test]
fn every_shape_loads_in_linear_time() {
    let limits = Limits::default();
    for shape in SHAPES {
        let modules = comparable(shape);
        let load = |times: usize| {
            let loaded = Module::new(&modules[usize::from(times > 1)], &limits);
            assert!(loaded.is_ok(), "{}: {:?}", shape.name, loaded.err());
        };
        if let Err([small, large]) = is_linear(load) {
            panic!("{}: {small:?} become {large:?} with four times the bytes", shape.name);
        }
    }
}

#[test]
fn every_shape_loads_in_linear_memory() {
    for shape in SHAPES {
        let taken = [1, 4].map(|times| {
            let bytes = module(shape, times);
            counting::count(|| Module::new(&bytes, &Limits::default()).is_ok()).1
        });
        // A list that grows by doubling can be half empty in one of both.
        assert!(taken[1].peak <= 9 * taken[0].peak + 100_000, "{}: {taken:?}", shape.name);
        assert!(taken[1].blocks <= 5 * taken[0].blocks + 200, "{}: {taken:?}", shape.name);
    }
}

/// A planted fault: quadratic work is noticed.
#[test]
fn quadratic_work_is_not_linear() {
    let quadratic = |times: usize| {
        let list: Vec<u64> = (0..4_000 * times as u64).collect();
        let sum: u64 = list
            .iter()
            .map(|&from| list.iter().map(|&to| std::hint::black_box(to ^ from)).max().unwrap_or(0))
            .sum();
        assert!(std::hint::black_box(sum) > 0);
    };
    assert!(is_linear(quadratic).is_err());
    let linear = |times: usize| (0..2_000_000 * times).for_each(|at| _ = std::hint::black_box(at));
    assert!(is_linear(linear).is_ok());
}

#[test]
fn an_element_needs_no_allocation() {
    for name in ["one element segment", "element expressions"] {
        let bytes = (shape(name).make)(100_000);
        let (module, taken) =
            counting::count(|| Module::new(&bytes, &Limits::default()).expect("a valid module"));
        assert!(module.elements()[0].items.len() > 30_000);
        assert!(taken.blocks < 300, "{name}: {taken:?}");
        assert!(taken.peak < 20 * bytes.len() as u64, "{name}: {taken:?}");
    }
}

#[test]
fn a_hundred_thousand_functions_load() {
    let module = Module::new(&(shape("empty functions").make)(400_000), &Limits::default())
        .expect("within the limits");
    assert_eq!(module.function_count(), 100_000);
}

#[test]
fn too_many_locals_are_refused_with_both_numbers() {
    let refused = Module::new(&shapes::too_many_locals(), &Limits::default());
    assert!(
        matches!(
            refused,
            Err(LoadError::Limit { limit: "locals", found: 50_000, allowed: 32_000, .. })
        ),
        "{refused:?}"
    );
}

#[test]
fn a_count_without_its_bytes_allocates_nothing() {
    // 4,000,000 elements are announced, one byte of them is there.
    let bytes = b"\0asm\x01\0\0\0\x09\x08\x01\x01\0\x80\x92\xf4\x01\0";
    let (loaded, taken) = counting::count(|| Module::new(bytes, &Limits::default()).is_ok());
    assert!(!loaded && taken.peak < 100_000, "{taken:?}");
}

/// Exports, and globals by the name section, are found by name; of several globals of a name the
/// first counts, and of several names of a global the first.
#[test]
fn names_are_found() {
    let text = r#"(module
        (func (export "b")) (func (export "c")) (func (export "a"))
        (global (export "y") i32 (i32.const 0)) (global i32 (i32.const 0)) (global i64 (i64.const 0))
        (@custom "name" (after last) "\07\0b\02\01\03one\02\03one")
        (@custom "name" (after last) "\07\0a\03\00\01t\01\01u\02\01u"))"#;
    let module = Module::new(&wat::parse_str(text).unwrap(), &Limits::default()).unwrap();
    let found: Vec<_> =
        ["a", "b", "c", "y", "", "d"].iter().map(|name| module.export(name)).collect();
    let by_scan = |name: &&str| {
        module.exports().iter().find(|export| export.name == *name).map(|export| export.kind)
    };
    assert_eq!(found, ["a", "b", "c", "y", "", "d"].iter().map(by_scan).collect::<Vec<_>>());
    let globals = ["one", "t", "u", "y", "a", ""].map(|name| module.find_global(name));
    assert_eq!(globals, [Some(1), Some(0), None, Some(0), None, None]);
}
