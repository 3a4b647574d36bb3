//! A program made of these bytes shows the same in any slices and through canonical bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wavelock_check_targets::laws(bytes));
