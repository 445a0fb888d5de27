//! Errors of the driver, NVRTC and kernels.

/// Why there is no device, or why it stopped being one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A library is not on this machine.
    #[error("{library} cannot be loaded: tried {tried}")]
    NoLibrary {
        /// What it is.
        library: &'static str,
        /// The names that were tried.
        tried: String,
    },
    /// A library is too old or too new: it lacks a function.
    #[error("{library} has no {function}")]
    NoFunction {
        /// The library.
        library: &'static str,
        /// The function.
        function: &'static str,
    },
    /// The driver is older than what the kernels need.
    #[error("the driver is for CUDA {}.{}, at least {}.{} is needed", .found / 1000, .found % 1000 / 10,
            .needed / 1000, .needed % 1000 / 10)]
    OldDriver {
        /// Its version, as the driver counts.
        found: i32,
        /// The least that is enough.
        needed: i32,
    },
    /// The GPU is older than what the kernels need.
    #[error("the GPU has compute capability {}.{}, at least 8.0 is needed", .0 / 10, .0 % 10)]
    OldGpu(u32),
    /// The driver refused a call.
    #[error("{call}: {reason}")]
    Driver {
        /// The function.
        call: &'static str,
        /// The driver's number of the error.
        code: i32,
        /// What it says.
        reason: String,
    },
    /// The kernels do not compile.
    #[error("{module} for {arch} does not compile: {log}")]
    Compile {
        /// The source.
        module: String,
        /// The GPU's architecture.
        arch: String,
        /// What the compiler says.
        log: String,
    },
}
