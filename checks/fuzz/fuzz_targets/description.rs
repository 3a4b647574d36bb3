//! Bytes are refused as a description of a whole machine, or run for a while.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wavelock_check_targets::description(bytes));
