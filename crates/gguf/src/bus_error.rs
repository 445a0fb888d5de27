//! Mapped files that become shorter. A page beyond the new end cannot be read: the system sends SIGBUS to the thread that tries,
//! which ends the process. The handler here replaces the rest of the mapping by zeros, and notes that it is damaged; signals
//! that are not about a mapped file go to the handler that was there before.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};

use memmap2::Mmap;

/// Addresses of a mapping. Entries are never freed, as a handler may be reading them, but used again.
#[derive(Debug)]
struct Entry {
    /// Even while the addresses are a mapping's, and another number for each.
    version: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    damaged: AtomicBool,
    next: AtomicPtr<Entry>,
}

/// All entries, the newest first.
static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());
/// Held to change entries; the handler takes no lock.
static CHANGING: Mutex<()> = Mutex::new(());
static INSTALLED: OnceLock<Installed> = OnceLock::new();

struct Installed {
    previous: libc::sigaction,
    page: usize,
}

/// A mapping that the handler knows.
#[derive(Debug)]
pub(crate) struct Watch(&'static Entry);

impl Watch {
    pub(crate) fn new(map: &Mmap) -> Watch {
        let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
        let free = entries().find(|entry| !entry.version.load(Ordering::Relaxed).is_multiple_of(2));
        let entry = free.unwrap_or_else(|| {
            let next = AtomicPtr::new(ENTRIES.load(Ordering::Relaxed));
            let new = Box::leak(Box::new(Entry {
                version: AtomicUsize::new(1),
                start: AtomicUsize::new(0),
                end: AtomicUsize::new(0),
                damaged: AtomicBool::new(false),
                next,
            }));
            ENTRIES.store(new, Ordering::Release);
            new
        });
        let start = map.as_ptr() as usize;
        entry.start.store(start, Ordering::Relaxed);
        entry.end.store(start + map.len(), Ordering::Relaxed);
        entry.damaged.store(false, Ordering::Relaxed);
        entry.version.fetch_add(1, Ordering::Release);
        Watch(entry)
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.0.damaged.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.version.fetch_add(1, Ordering::Relaxed);
        // Addresses that are written after this come with the new version.
        fence(Ordering::Release);
    }
}

impl Entry {
    /// The end of the mapping, if it holds this address. The thread that reads there keeps its own mapping as it is;
    /// entries of others may change meanwhile, and count as not holding it.
    fn end_of(&self, address: usize) -> Option<usize> {
        let version = self.version.load(Ordering::Acquire);
        let (start, end) = (self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_stable = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        (is_stable && (start..end).contains(&address)).then_some(end)
    }
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    // SAFETY: dereferencing asks for null or a live value: entries are leaked, and released with the pointer to them.
    let load = |place: &AtomicPtr<Entry>| unsafe { place.load(Ordering::Acquire).as_ref() };
    std::iter::successors(load(&ENTRIES), move |entry| load(&entry.next))
}

pub(crate) fn handle() -> io::Result<()> {
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    if INSTALLED.get().is_some() {
        return Ok(());
    }
    // SAFETY: `sysconf` asks for nothing.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).map_err(io::Error::other)?;
    // SAFETY: `zeroed` asks that zeros are a valid value: the struct holds numbers and an optional pointer.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `sigaction` asks for null or valid structs: it only fills in the old one.
    let known = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) };
    if known != 0 {
        return Err(io::Error::last_os_error());
    }
    // The handler finds it from its first signal on.
    INSTALLED.get_or_init(|| Installed { previous, page });
    let mut own = previous;
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
    own.sa_sigaction = handler as usize;
    own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `sigaction` asks for null or valid structs, and a handler that does only what a signal handler may: it reads
    // atomics and calls `mmap`, and otherwise what was the handler before.
    let set = unsafe { libc::sigaction(libc::SIGBUS, &raw const own, ptr::null_mut()) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(installed) = INSTALLED.get() else { return };
    // SAFETY: dereferencing asks for a live struct: the system passes one to a handler with SA_SIGINFO.
    let info_of = unsafe { &*info };
    // SAFETY: `si_addr` asks for a signal that has an address, as SIGBUS of a memory access does; of one that another
    // process sent, the bytes are some number, which at most names a mapping.
    let address = unsafe { info_of.si_addr() } as usize;
    // Positive for faults; signals that a process sent have no address.
    let is_fault = info_of.si_code > 0;
    let found = entries().find_map(|entry| Some((entry, entry.end_of(address)?))).filter(|_| is_fault);
    if let Some((entry, end)) = found {
        entry.damaged.store(true, Ordering::Release);
        if replace(address / installed.page * installed.page, end) {
            return;
        }
    }
    pass_on(&installed.previous, signal, info, context);
}

/// Puts pages of zeros in the place of a part of a mapping.
fn replace(start: usize, end: usize) -> bool {
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE;
    let place = start as *mut libc::c_void;
    // SAFETY: `mmap` with MAP_FIXED asks that the range is the caller's: it is the rest of a read-only mapping of ours,
    // which stays while a thread reads from it, up to its last page.
    let mapped = unsafe { libc::mmap(place, end - start, libc::PROT_READ, flags, -1, 0) };
    mapped == place
}

/// Does what the handler before would have done.
fn pass_on(
    previous: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    type Simple = extern "C" fn(libc::c_int);
    type Detailed = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    match previous.sa_sigaction {
        // The access is repeated when this returns, and ends the process.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: `signal` asks for a known signal and disposition.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: `transmute` asks that the number is such a function: SA_SIGINFO says so.
            let handler: Detailed = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: `transmute` asks that the number is such a function: it is neither of the constants, and SA_SIGINFO
            // is not set.
            let handler: Simple = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}
