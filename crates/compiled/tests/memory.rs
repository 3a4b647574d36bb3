//! Executable memory: never writable and executable at once, and returned when a module is dropped.
//! One test in its own process, because it reads the process's mappings.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use wavelock_compiled::{CompiledModule, Options};
use wavelock_module::{Limits, Module};

/// Executable mappings without a file, and whether any mapping is writable and executable.
fn mappings() -> (usize, bool) {
    let text = std::fs::read_to_string("/proc/self/maps").expect("the process's mappings");
    let flags = |line: &str| line.split_whitespace().nth(1).unwrap_or_default().to_string();
    let anonymous = text
        .lines()
        .filter(|line| flags(line).contains('x') && line.split_whitespace().count() < 6);
    let both = text.lines().map(flags).any(|flags| flags.contains('w') && flags.contains('x'));
    (anonymous.count(), both)
}

#[test]
fn code_memory_is_not_writable_and_is_returned() {
    let text = r#"(module (func (param i32) (result i32) (i32.add (local.get 0) (i32.const 1))))"#;
    let bytes = wat::parse_str(text).expect("a valid text");
    let module = Arc::new(Module::new(&bytes, &Limits::default()).expect("valid"));
    let before = mappings();
    assert!(!before.1, "a mapping is writable and executable before the test");
    let compiled: Vec<CompiledModule> = (0..8)
        .map(|_| CompiledModule::new(&module, &Options::default()).expect("executable memory"))
        .collect();
    let during = mappings();
    // Neighbouring mappings may be merged.
    assert!(during.0 > before.0 && !during.1, "{during:?}");
    assert!(compiled.iter().all(|compiled| compiled.code_bytes() > 0));
    drop(compiled);
    assert_eq!(mappings(), before);
}
