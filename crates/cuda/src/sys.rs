//! The driver and NVRTC, as far as they are used: loaded at run time, every call a [`Result`].

mod driver;
mod nvrtc;

pub(crate) use driver::{
    Attribute, Context, DevicePtr, Driver, Event, Function, Graph, LaunchAttribute, LaunchConfig, Module,
    OUT_OF_MEMORY, Stream,
};
pub(crate) use nvrtc::Nvrtc;

use crate::Error;

/// The first of some libraries that is there.
fn open(library: &'static str, names: &[String]) -> Result<libloading::Library, Error> {
    // SAFETY: `Library::new` runs the library's initialisers, which must be sound: the names are those of NVIDIA's
    // libraries, whose initialisers have no preconditions.
    let found = names.iter().find_map(|name| unsafe { libloading::Library::new(name) }.ok());
    found.ok_or_else(|| Error::NoLibrary { library, tried: names.join(", ") })
}

/// A table of a library's functions, each looked up once when it is loaded.
macro_rules! functions {
    ($table:ident of $library:literal { $($name:ident = $symbol:literal ($($argument:ty),*);)* }) => {
        #[allow(non_snake_case)]
        struct $table { $($name: unsafe extern "C" fn($($argument),*) -> i32,)* }

        impl $table {
            fn load(library: &libloading::Library) -> Result<$table, crate::Error> {
                Ok($table { $($name: {
                    type Signature = unsafe extern "C" fn($($argument),*) -> i32;
                    let missing = |_| crate::Error::NoFunction { library: $library, function: $symbol };
                    // SAFETY: `get` asks that the type is the symbol's: it is what NVIDIA documents for it.
                    let symbol = unsafe { library.get::<Signature>(concat!($symbol, "\0").as_bytes()) };
                    *symbol.map_err(missing)?
                },)* })
            }
        }
    };
}
pub(crate) use functions;
