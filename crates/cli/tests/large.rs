//! Large manifests are parsed and wired in linear time, even if everything in them is wrong; values
//! beyond a limit are refused with both numbers.
#![cfg(target_os = "linux")]

#[path = "../../module/tests/shapes/mod.rs"]
#[allow(dead_code, reason = "the tests of loading use the rest")]
mod shapes;
#[path = "../../module/tests/stopwatch/mod.rs"]
mod stopwatch;

use std::path::Path;
use std::sync::Arc;
use stopwatch::is_linear;
use wavelock_cli::manifest::{self, Overrides};
use wavelock_cli::{Ink, Render, Source};
use wavelock_module::Module;
use wavelock_system::{MachineSpec, World};

/// The problems of a manifest; 0 if it is accepted.
fn problems(text: &str) -> usize {
    match manifest::read(Source::new("m.toml", text), Path::new("."), &Overrides::default()) {
        Ok(_) => 0,
        Err(problems) => problems.rows().len(),
    }
}

fn sessions(count: usize, more: impl Fn(usize) -> String) -> String {
    (0..count)
        .map(|at| format!("[[session]]\nname = \"s{at}\"\nmodule = \"m{at}.wat\"\n{}", more(at)))
        .collect()
}

fn channels(count: usize, owner: impl Fn(usize) -> String) -> String {
    (0..count)
        .map(|at| format!("[[channel]]\nname = \"c{at}\"\nowner = \"{}\"\n", owner(at)))
        .collect()
}

/// A name, the number of problems per entry, and the manifest with `n` entries.
type Case<'a> = (&'a str, usize, &'a dyn Fn(usize) -> String);

#[test]
fn large_manifests_are_read_in_linear_time() {
    let none = |_: usize| String::new();
    let cases: [Case<'_>; 5] = [
        ("sessions of as many modules", 0, &|n| sessions(n, none)),
        ("channels of one session", 0, &|n| sessions(1, none) + &channels(n, |_| "s0".to_owned())),
        ("ports to channels that do not exist", 2, &|n| {
            sessions(n, |at| format!("ports = {{ out = \"x{at}\" }}\n"))
                + &channels(n, |at| format!("s{at}"))
        }),
        ("owners that do not exist", 1, &|n| {
            sessions(n, none) + &channels(n, |at| format!("t{at}"))
        }),
        ("grants to many sessions", 0, &|n| {
            let grant = |at| format!("[[grant]]\nsession = \"s{at}\"\nof = \"control\"\n");
            sessions(n, none) + &(0..n).map(grant).collect::<String>()
        }),
    ];
    for (name, wrong, make) in cases {
        let manifests = [make(4_000), make(16_000)];
        let read = |times: usize| {
            let text = &manifests[usize::from(times > 1)];
            assert_eq!(problems(text), wrong * 4_000 * times, "{name}");
        };
        if let Err([small, large]) = is_linear(read) {
            panic!("{name}: {small:?} become {large:?} with four times the entries");
        }
    }
}

/// Ports and channels are wired in linear time, in any order of their names.
#[test]
fn large_machines_are_wired_in_linear_time() {
    let text = br#"(module (func (export "_start")))"#;
    let module = Arc::new(
        Module::from_text(text, &wavelock_module::Limits::default()).expect("a valid module"),
    );
    let make = |count: usize| {
        let mut spec = MachineSpec::new();
        let module = spec.add_module(Arc::clone(&module), text);
        let (owner, sender) =
            (spec.add_session("owner", module), spec.add_session("sender", module));
        for at in (0..count).rev() {
            let channel = spec.add_channel(&format!("c{at:06}"), owner, 1);
            spec.sessions[sender.0 as usize].ports.push((format!("p{at:06}"), channel));
        }
        spec
    };
    let specs = [make(8_000), make(32_000)];
    let load = |times: usize| {
        let loaded = World::load(specs[usize::from(times > 1)].clone(), Vec::new(), false);
        assert!(loaded.is_ok(), "{:?}", loaded.err());
    };
    if let Err([small, large]) = is_linear(load) {
        panic!("{small:?} become {large:?} with four times the channels");
    }
}

/// From a module to a session: linking imports, allocating tables and memories, copying segments,
/// resolving entries.
#[test]
fn every_shape_of_module_becomes_a_session_in_linear_time() {
    for shape in shapes::SHAPES {
        let make = |bytes: usize| {
            let bytes = (shape.make)(shape.fixed + bytes);
            let module = Module::new(&bytes, &wavelock_module::Limits::default())
                .unwrap_or_else(|error| panic!("{error}"));
            let mut spec = MachineSpec::new();
            let module = spec.add_module(Arc::new(module), &bytes);
            spec.add_session("one", module);
            spec
        };
        let most = (shape.most - shape.fixed).min(64_000);
        let specs = [make(most / 4), make(most)];
        let load = |times: usize| {
            let loaded = World::load(specs[usize::from(times > 1)].clone(), Vec::new(), false);
            assert!(loaded.is_ok(), "{}: {:?}", shape.name, loaded.err());
        };
        if let Err([small, large]) = is_linear(load) {
            panic!("{}: {small:?} become {large:?} with four times the bytes", shape.name);
        }
    }
}

#[test]
fn values_beyond_a_limit_are_refused_with_both_numbers() {
    let refused = |text: &str| {
        let refused =
            manifest::read(Source::new("m.toml", text), Path::new("."), &Overrides::default());
        refused.expect_err("it is beyond a limit").render(Ink::Plain)
    };
    let counted = |count: usize, more: &str| {
        format!("[[session]]\nname = \"s\"\nmodule = \"m.wat\"\ncount = {count}\n{more}")
    };
    let text = refused(&(counted(65_536, "") + "[[session]]\nname = \"t\"\nmodule = \"m.wat\"\n"));
    assert!(text.contains("65_537 exceed the limit of 65_536"), "{text}");
    // 16 kB of manifest would be 262 million strings.
    let text = refused(&counted(65_536, &format!("args = [{}]\n", "\"a\", ".repeat(4_000))));
    assert!(text.contains("262_144_000 exceed the limit of 4_194_304"), "{text}");
}
