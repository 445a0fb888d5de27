//! The driver and NVRTC, as far as they are used: loaded at run time, every call a [`Result`].
//!
//! Three layers, as in [cudarc](https://github.com/coreylowman/cudarc): the table of foreign functions and plain handles
//! (`driver`, `nvrtc`, private to this module); calls that check their codes; and owned objects that keep what they belong
//! to alive and destroy themselves. Operations on a [`Stream`] take plain addresses and run later, so they are `unsafe`.

mod context;
mod driver;
mod memory;
mod module;
mod nvrtc;
mod stream;

pub(crate) use context::PrimaryContext;
pub(crate) use driver::{Attribute, DevicePtr, Driver, OUT_OF_MEMORY};
pub(crate) use memory::{DeviceMemory, PinnedMemory, RegisteredPages};
pub(crate) use module::{Function, Module};
pub(crate) use nvrtc::Nvrtc;
pub(crate) use stream::{Event, GraphExec, LaunchShape, Stream};

use crate::Error;

/// Loads the first of some libraries that the system finds.
fn open(library: &'static str, names: &[String]) -> Result<libloading::Library, Error> {
    // SAFETY: `Library::new` runs the library's initializers, which must be sound: the names are those of NVIDIA's
    // libraries, whose initializers have no preconditions.
    let found = names.iter().find_map(|name| unsafe { libloading::Library::new(name) }.ok());
    found.ok_or_else(|| Error::NoLibrary { library, tried: names.join(", ") })
}

/// A table of a library's functions, each looked up once when it is loaded.
macro_rules! functions {
    ($table:ident of $library:literal { $($name:ident = $symbol:literal ($($argument:ty),*);)* }) => {
        #[allow(non_snake_case)]
        pub(super) struct $table { $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> i32,)* }

        impl $table {
            fn load(library: &libloading::Library) -> Result<$table, crate::Error> {
                Ok($table { $($name: {
                    type Signature = unsafe extern "C" fn($($argument),*) -> i32;
                    let missing = |_| crate::Error::NoFunction { library: $library, function: $symbol };
                    // SAFETY: `get` asks that the type is the symbol's: it is the signature that NVIDIA documents.
                    let symbol = unsafe { library.get::<Signature>(concat!($symbol, "\0").as_bytes()) };
                    *symbol.map_err(missing)?
                },)* })
            }
        }
    };
}
pub(crate) use functions;
