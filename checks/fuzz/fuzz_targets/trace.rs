//! Bytes are refused as a trace file, or read as far as they make sense.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wavelock_check_targets::trace(bytes));
