#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| moorline_fuzz::head::check(bytes));
