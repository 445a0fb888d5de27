//! What C passes: texts, arrays, objects, and places for results.
//!
//! All of this is unsafe for one reason: the caller promises that a pointer is NULL or points to what the function says, and
//! that nothing else writes it during the call.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::Refusal;

/// A text that ends with a zero.
///
/// # Safety
/// `text` is NULL or such a text, which stays as it is for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Refusal> {
    if text.is_null() {
        return Err(Refusal::null(what));
    }
    // SAFETY: it is not NULL, and the caller promises the rest.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|error| Refusal::argument(format!("{what} is not UTF-8: {error}")))
}

/// An array to read.
///
/// # Safety
/// `start` is NULL or the first of `count` values, which stay as they are for `'a`.
pub(crate) unsafe fn array<'a, T>(start: *const T, count: usize, what: &str) -> Result<&'a [T], Refusal> {
    check(start, count, what)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: it is aligned, not NULL and no longer than an array can be; the caller promises the rest.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// An array to write.
///
/// # Safety
/// `start` is NULL or the first of `count` initialized values, which nothing else uses for `'a`.
pub(crate) unsafe fn array_mut<'a, T>(
    start: *mut T,
    count: usize,
    what: &str,
) -> Result<&'a mut [T], Refusal> {
    check(start, count, what)?;
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: it is aligned, not NULL and no longer than an array can be; the caller promises the rest.
    Ok(unsafe { std::slice::from_raw_parts_mut(start, count) })
}

fn check<T>(start: *const T, count: usize, what: &str) -> Result<(), Refusal> {
    if count == 0 {
        return Ok(());
    }
    if start.is_null() {
        return Err(Refusal::null(what));
    }
    let fits = count.checked_mul(size_of::<T>().max(1)).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if !fits || !start.is_aligned() {
        return Err(Refusal::argument(format!("{what} is no array of {count} values")));
    }
    Ok(())
}

/// An object, or a structure.
///
/// # Safety
/// `pointer` is NULL or points to a value that lives and that nothing writes for `'a`.
pub(crate) unsafe fn object<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Refusal> {
    // SAFETY: the caller promises it.
    unsafe { pointer.as_ref() }.ok_or_else(|| Refusal::null(what))
}

/// Writes a result, if there is a place for it.
///
/// # Safety
/// `place` is NULL or may be written.
pub(crate) unsafe fn give<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: it is not NULL, and the caller promises the rest. What was there is no value of ours.
        unsafe { place.write(value) };
    }
}

/// Gives an object to the caller.
///
/// # Safety
/// `place` is NULL, which is refused, or may be written.
pub(crate) unsafe fn give_object<T>(place: *mut *mut T, value: T, what: &str) -> Result<(), Refusal> {
    if place.is_null() {
        return Err(Refusal::null(what));
    }
    // SAFETY: the caller promises it.
    unsafe { give(place, Box::into_raw(Box::new(value))) };
    Ok(())
}

/// Takes an object back from the caller, and frees it. What panics meanwhile leaks, and the panic ends here.
///
/// # Safety
/// `pointer` is NULL or comes from [`give_object`], and is not used again.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: it comes from `Box::into_raw`, and the caller promises that it was not freed before.
        let object = unsafe { Box::from_raw(pointer) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(object)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Panics;

    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("while it is freed");
        }
    }

    #[test]
    fn a_panic_while_an_object_is_freed_does_not_reach_the_caller() {
        let mut object = std::ptr::null_mut();
        // SAFETY: the place is ours.
        unsafe { give_object(&mut object, Panics, "object") }.unwrap();
        // SAFETY: it was just made, and is not used again.
        unsafe { free(object) };
    }
}
