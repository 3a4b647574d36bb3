//! A program made of these bytes shows the same here and on wasmtime.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wavelock_check_targets::differential(bytes));
