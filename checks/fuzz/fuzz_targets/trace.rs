//! Bytes are refused as a trace file, or read up to the first malformed part.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wavelock_check_targets::trace(bytes));
