//! A program generated from these bytes gives the same result here and on wasmtime.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wavelock_check_targets::differential(bytes));
