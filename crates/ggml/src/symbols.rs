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
    // SAFETY: `dlsym` asks for a live handle and a terminated name: the handle is a constant of the loader's or that of a
    // library that stays open, and a `CStr` is terminated.
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
        // SAFETY: `dlopen` asks for a terminated name, which a `CStr` is, and runs initializers of what it loads: with
        // `RTLD_NOLOAD`, nothing is loaded.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            return None;
        }
        if super::find(library, c"ggml_backend_tensor_alloc").is_null() {
            // SAFETY: `dlclose` asks for an open handle that is not used afterwards: `dlopen` returned it, and no symbol of it
            // was kept.
            unsafe { libc::dlclose(library) };
            return None;
        }
        Some(library)
    }

    fn names() -> Vec<CString> {
        let mut names: Vec<CString> = Vec::new();
        // SAFETY: `dl_iterate_phdr` asks for a callback that is sound for the entries and the pointer that it is given: `keep`
        // is for a pointer to this list, which lives until the call returns.
        unsafe { libc::dl_iterate_phdr(Some(keep), (&raw mut names).cast()) };
        names
    }

    unsafe extern "C" fn keep(info: *mut libc::dl_phdr_info, _bytes: usize, names: *mut c_void) -> c_int {
        // SAFETY: reading a field asks for a live entry: `dl_iterate_phdr` passes one that lives during this call.
        let name = unsafe { (*info).dlpi_name };
        // SAFETY: `&mut *` asks for a live, exclusive list: it is the one that `names` passes, which is not touched until the
        // iteration has ended.
        let names = unsafe { &mut *names.cast::<Vec<CString>>() };
        if !name.is_null() {
            // SAFETY: `from_ptr` asks for a terminated string that lives as long as the result: the loader's names are
            // terminated and live during this call, and the result is copied.
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
