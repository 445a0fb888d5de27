//! Lookup of the host's functions.

use std::ffi::{CStr, c_void};

/// Maps the name of a function to its address, or null.
pub type Symbols = fn(&CStr) -> *const c_void;

/// The functions of this process, without those of this library.
pub(crate) fn of_process(name: &CStr) -> *const c_void {
    let next = find(libc::RTLD_NEXT, name);
    if !next.is_null() {
        return next;
    }
    match private::library() {
        Some(library) => find(library, name),
        None => find(libc::RTLD_DEFAULT, name),
    }
}

fn find(library: *mut c_void, name: &CStr) -> *const c_void {
    // SAFETY: the handle is one of the two that always are, or of a library that is never closed; the name ends in a
    // zero.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// Programs such as Python load ggml with private symbols (`RTLD_LOCAL`): it must be found among all loaded libraries.
#[cfg(target_os = "linux")]
mod private {
    use std::ffi::{CStr, CString, c_int, c_void};
    use std::sync::OnceLock;

    /// A handle as an integer, which is `Sync`.
    static LIBRARY: OnceLock<Option<usize>> = OnceLock::new();

    pub(super) fn library() -> Option<*mut c_void> {
        let handle = LIBRARY.get_or_init(|| names().iter().find_map(|name| open(name)).map(|at| at as usize));
        handle.map(|at| at as *mut c_void)
    }

    /// A loaded library, if it or a dependency contains ggml. It stays open, so that its functions stay valid.
    fn open(name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the name ends in a zero; nothing is loaded, so no code of anybody's runs.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            return None;
        }
        if super::find(library, c"ggml_backend_tensor_alloc").is_null() {
            // SAFETY: it was opened above, and nothing of it is in use.
            unsafe { libc::dlclose(library) };
            return None;
        }
        Some(library)
    }

    fn names() -> Vec<CString> {
        let mut names: Vec<CString> = Vec::new();
        // SAFETY: `keep` has the signature that is asked for, and gets the list that it expects.
        unsafe { libc::dl_iterate_phdr(Some(keep), (&raw mut names).cast()) };
        names
    }

    unsafe extern "C" fn keep(info: *mut libc::dl_phdr_info, _bytes: usize, names: *mut c_void) -> c_int {
        // SAFETY: the loader hands over an entry of its list.
        let name = unsafe { (*info).dlpi_name };
        // SAFETY: this is the list of `names`, which has no other reference during the iteration.
        let names = unsafe { &mut *names.cast::<Vec<CString>>() };
        if !name.is_null() {
            // SAFETY: the loader's names end in a zero.
            let name = unsafe { CStr::from_ptr(name) };
            if !name.is_empty() {
                names.push(name.to_owned());
            }
        }
        0
    }
}

#[cfg(not(target_os = "linux"))]
mod private {
    pub(super) fn library() -> Option<*mut std::ffi::c_void> {
        None
    }
}
