//! Whether this process may use AMX: Linux keeps 8 KiB of tiles for each thread, and only for processes that ask.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;

/// Bits of EDX in leaf 7: tiles, and products of tiles of 8-bit integers.
const TILES: u32 = 1 << 24 | 1 << 25;

/// `arch_prctl`, its request for a part of a thread's state, and the number of the tiles' data among these parts. See
/// <https://docs.kernel.org/arch/x86/xstate.html>.
const ARCH_PRCTL: i64 = 158;
const REQUEST_PERMISSION: u64 = 0x1023;
const TILE_DATA: u64 = 18;

pub(super) fn has_tiles() -> bool {
    __cpuid_count(7, 0).edx & TILES == TILES
}

/// Asks for the process, and for threads that it starts from now on. Asking again is allowed.
pub(super) fn may_use_tiles() -> bool {
    let answer: i64;
    // SAFETY: the system call takes two numbers, touches no memory of the process, and changes the two registers named.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => answer,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer == 0
}
