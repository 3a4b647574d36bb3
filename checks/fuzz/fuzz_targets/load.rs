//! A module is refused, or it runs for a while.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wavelock_check_targets::load(bytes));
