//! Statuses and errors.

use std::any::Any;
use std::ffi::{CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::pointer;

/// How a call ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum orlop_status {
    /// It did what it should.
    OrlopOk = 0,
    /// An argument is NULL, out of range, not UTF-8, or of another version.
    OrlopBadArgument = 1,
    /// The library or a device refused; the error says why.
    OrlopFailed = 2,
    /// Another call uses the object.
    OrlopBusy = 3,
    /// The array is too small; the needed size was given.
    OrlopTooSmall = 4,
    /// A bug in Orlop. The object may be unusable.
    OrlopPanic = 5,
    /// The object was made by the process that this one was forked from.
    OrlopForked = 6,
}

/// An error with a message.
pub struct orlop_error {
    message: CString,
}

/// Why a call did not succeed.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: orlop_status,
    message: String,
}

impl Refusal {
    pub(crate) fn argument(message: impl Display) -> Refusal {
        Refusal { status: orlop_status::OrlopBadArgument, message: message.to_string() }
    }

    pub(crate) fn null(what: &str) -> Refusal {
        Refusal::argument(format!("{what} is NULL"))
    }

    pub(crate) fn failed(error: impl Display) -> Refusal {
        Refusal { status: orlop_status::OrlopFailed, message: error.to_string() }
    }

    pub(crate) fn busy(what: &str) -> Refusal {
        Refusal { status: orlop_status::OrlopBusy, message: format!("another call uses the {what}") }
    }

    pub(crate) fn forked(what: &str) -> Refusal {
        let message = format!("the {what} was made before this process was forked; make another");
        Refusal { status: orlop_status::OrlopForked, message }
    }

    pub(crate) fn too_small(what: &str, needed: usize, given: usize) -> Refusal {
        let message = format!("{what} has room for {given}, and {needed} are needed");
        Refusal { status: orlop_status::OrlopTooSmall, message }
    }

    fn panic(panic: &(dyn Any + Send)) -> Refusal {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Refusal { status: orlop_status::OrlopPanic, message: format!("this is a bug in orlop: {text}") }
    }
}

/// Checks the version of a structure.
pub(crate) fn check_version(what: &str, found: u32, known: u32) -> Result<(), Refusal> {
    match found == known {
        true => Ok(()),
        false => {
            Err(Refusal::argument(format!("{what} has version {found}, and {known} is known; use its _init")))
        }
    }
}

/// Runs the body of a function: its error goes to `error`, and panics do not leave it.
///
/// # Safety
/// `error` is NULL or may be written.
pub(crate) unsafe fn run(
    error: *mut *mut orlop_error,
    work: impl FnOnce() -> Result<(), Refusal>,
) -> orlop_status {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Refusal::panic(&*panic)));
    let (status, made) = match done {
        Ok(()) => (orlop_status::OrlopOk, ptr::null_mut()),
        Err(Refusal { status, message }) if !error.is_null() => {
            let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
            (status, Box::into_raw(Box::new(orlop_error { message })))
        }
        Err(Refusal { status, .. }) => (status, ptr::null_mut()),
    };
    // SAFETY: the caller promises it.
    unsafe { pointer::give(error, made) };
    status
}

/// The message of an error, which lives as long as the error; NULL for NULL.
///
/// # Safety
/// `error` is NULL or comes from a call, and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_error_message(error: *const orlop_error) -> *const c_char {
    // SAFETY: the caller promises it.
    unsafe { error.as_ref() }.map_or(ptr::null(), |error| error.message.as_ptr())
}

/// Frees an error.
///
/// # Safety
/// `error` is NULL or comes from a call, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_error_free(error: *mut orlop_error) {
    // SAFETY: the caller promises it.
    unsafe { pointer::free(error) };
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn orlop_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
