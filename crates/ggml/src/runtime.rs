//! The process-wide state, initialized at the first call.

use std::ffi::{CStr, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use crate::host::{Host, SchedulerHost, text};
use crate::layout::{Mismatch, has_uid, verify};
use crate::symbols::{Symbols, of_process};

/// What serves calls.
#[derive(Debug)]
pub(crate) enum Runtime {
    /// Orlop.
    Interposed(Box<Interposer>),
    /// The host's own functions, found through these symbols.
    PassThrough(Symbols),
}

impl Runtime {
    /// The host's functions.
    pub(crate) fn symbols(&self) -> Symbols {
        match self {
            Runtime::Interposed(ours) => ours.symbols,
            Runtime::PassThrough(symbols) => *symbols,
        }
    }
}

/// The host's functions and the user's settings.
#[derive(Debug)]
pub(crate) struct Interposer {
    pub(crate) host: Host,
    symbols: Symbols,
    op_can_inplace: Option<unsafe extern "C" fn(c_int) -> bool>,
    /// `ORLOP_GGML_LOG`: log sizes.
    pub(crate) log: bool,
    /// `ORLOP_GGML_PLAN`: write plans into this folder.
    pub(crate) folder: Option<PathBuf>,
    /// Number of plans.
    pub(crate) plans: AtomicU64,
    /// What schedulers need, unless the program's own serve (`ORLOP_GGML_SCHED`).
    pub(crate) scheduler: Option<SchedulerHost>,
    /// Schedulers for several graphs at a time are served, too.
    pub(crate) is_parallel: bool,
}

static SYMBOLS: OnceLock<Symbols> = OnceLock::new();
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// Ops that may overwrite their operands, by name, for a host without `ggml_op_can_inplace`.
const IN_PLACE: [&str; 21] = [
    "FILL",
    "SCALE",
    "DIAG_MASK_ZERO",
    "DIAG_MASK_INF",
    "ADD",
    "ADD_ID",
    "ADD1",
    "SUB",
    "MUL",
    "DIV",
    "SQR",
    "SQRT",
    "LOG",
    "UNARY",
    "ROPE",
    "ROPE_BACK",
    "SILU_BACK",
    "RMS_NORM",
    "RMS_NORM_BACK",
    "SOFT_MAX",
    "SOFT_MAX_BACK",
];

/// Sets the lookup of the host's functions, for programs that link ggml and this library statically and export no
/// symbols. Returns `false` after the first call of an exported function.
pub fn use_symbols(symbols: Symbols) -> bool {
    RUNTIME.get().is_none() && SYMBOLS.set(symbols).is_ok()
}

/// What serves calls in this process.
pub(crate) fn runtime() -> &'static Runtime {
    RUNTIME.get_or_init(|| {
        let symbols = SYMBOLS.get().copied().unwrap_or(of_process);
        let host = Host::find(symbols)
            .map_err(|name| Mismatch::Missing { name: name.to_string_lossy().into_owned() });
        let verified = host.and_then(|host| verify(&host).map(|layout| (host, layout)));
        match verified {
            Ok((host, layout)) => {
                let ours = Interposer::new(host, symbols);
                if ours.log {
                    let version = host.version().map(text).unwrap_or_default();
                    log(format_args!("ggml {version}, layout of {}", layout.versions));
                }
                Runtime::Interposed(Box::new(ours))
            }
            Err(why) => {
                log(format_args!("unsupported ggml ({why}); using its own allocator"));
                Runtime::PassThrough(symbols)
            }
        }
    })
}

impl Interposer {
    fn new(host: Host, symbols: Symbols) -> Interposer {
        let value = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let log = value("ORLOP_GGML_LOG").is_some_and(|value| value != "0");
        let schedules = value("ORLOP_GGML_SCHED");
        let is_parallel = schedules.as_ref().is_some_and(|value| value == "parallel");
        let schedules = schedules.is_none_or(|value| value != "0");
        let found = host_function(
            symbols,
            c"ggml_op_can_inplace",
            crate::exports::ggml_op_can_inplace as *const c_void,
        );
        // SAFETY: `transmute` asks for null, which is `None`, or a function of this type: ggml's function of this name has had
        // this signature in all versions that have it.
        let op_can_inplace = unsafe {
            std::mem::transmute::<*const c_void, Option<unsafe extern "C" fn(c_int) -> bool>>(found)
        };
        let scheduler = schedules.then(|| scheduler_of(&host, symbols)).flatten();
        let folder = value("ORLOP_GGML_PLAN").map(PathBuf::from);
        Interposer {
            host,
            symbols,
            op_can_inplace,
            log,
            folder,
            plans: AtomicU64::new(0),
            scheduler,
            is_parallel,
        }
    }

    /// Whether plans are logged or written.
    pub(crate) fn reports(&self) -> bool {
        self.log || self.folder.is_some()
    }

    /// Whether an op may overwrite its operands, according to the host, as its backends rely on it.
    pub(crate) fn may_overwrite(&self, op: c_int) -> bool {
        match self.op_can_inplace {
            // SAFETY: it takes any op that a tensor of the host's has.
            Some(can) => unsafe { can(op) },
            None => IN_PLACE.contains(&text(self.host.op_name(op)).as_str()),
        }
    }
}

/// What schedulers need, if the host has it.
fn scheduler_of(host: &Host, symbols: Symbols) -> Option<SchedulerHost> {
    let found = SchedulerHost::find(symbols);
    let why = match &found {
        Err(name) => format!("missing function {}", name.to_string_lossy()),
        Ok(_) if !has_uid(host) => "graphs of an unknown layout".to_owned(),
        Ok(_) => return found.ok(),
    };
    log(format_args!("unsupported ggml ({why}); using its own scheduler"));
    None
}

/// The host's function of this name; null if there is none, or only ours.
pub(crate) fn host_function(symbols: Symbols, name: &CStr, ours: *const c_void) -> *const c_void {
    let found = symbols(name);
    if found == ours { std::ptr::null() } else { found }
}

/// Logs a line to standard error.
pub(crate) fn log(line: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "orlop: {line}");
}
