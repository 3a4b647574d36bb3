//! A program generated from these bytes gives the same result in any slices and through
//! serialization.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wavelock_check_targets::laws(bytes));
