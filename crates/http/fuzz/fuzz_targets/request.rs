//! libFuzzer's entry to the endpoints of the server.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orlop_http::fuzz::FuzzTarget;

thread_local! {
    static TARGET: FuzzTarget = FuzzTarget::new();
}

fuzz_target!(|bytes: &[u8]| {
    TARGET.with(|target| {
        // Most requests are refused, which is right.
        let _ = target.run(bytes);
    });
});
