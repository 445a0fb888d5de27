//! A host with known sizes but a field at another offset.

use std::ffi::{CStr, c_void};
use std::ptr::null;

use orlop_ggml::{GgmlGraphAllocator, RawTensor, ggml_gallocr_new, use_symbols};

#[allow(dead_code)] // the suite uses all of it
#[path = "suite/host.rs"]
mod host;

/// Sets another flag than the output flag of known versions.
extern "C" fn set_output(tensor: *mut RawTensor) {
    host::at(tensor).op_params[15] |= orlop_ggml::FLAG_OUTPUT;
}

extern "C" fn new(_kind: *mut c_void) -> *mut GgmlGraphAllocator {
    std::ptr::dangling_mut()
}

fn symbols(name: &CStr) -> *const c_void {
    match name.to_str() {
        Ok("ggml_set_output") => set_output as *const c_void,
        Ok("ggml_gallocr_new") => new as *const c_void,
        Ok(name) if name.starts_with("ggml_gallocr") => null(),
        _ => host::symbols(name),
    }
}

#[test]
fn a_field_that_is_elsewhere_leaves_the_hosts_own_allocator_in_place() {
    assert!(use_symbols(symbols));
    let kind = host::Kind::new(usize::MAX, 32);
    // SAFETY: the kind lives; the host's own function, which answers, does not look at it.
    let allocator = unsafe { ggml_gallocr_new(kind.as_ptr()) };
    assert_eq!(allocator, std::ptr::dangling_mut());
}
