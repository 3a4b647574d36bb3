//! Bytes are refused as a snapshot, or are the unique encoding of a state that runs for a while.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wavelock_check_targets::snapshot(bytes));
