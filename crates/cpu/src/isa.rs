use std::fmt;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx;

/// Which instructions kernels may use. Chosen when a device is made, never by how the program was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust; every other kernel has a twin here.
    Scalar,
    /// 64-bit ARM with NEON and dot products.
    Neon,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL, DQ and VNNI, beside all of AVX2's.
    Avx512,
    /// x86-64 with the 8-bit tiles of [AMX](https://en.wikipedia.org/wiki/Advanced_Matrix_Extensions), beside all of AVX-512's.
    /// Used on request: whole prompts are not faster than on AVX-512.
    Amx,
}

impl Isa {
    /// All of them, the better of each kind of machine later.
    pub const ALL: [Isa; 5] = [Isa::Scalar, Isa::Neon, Isa::Avx2, Isa::Avx512, Isa::Amx];

    /// The best that this machine has; AMX is never chosen.
    pub fn detect() -> Isa {
        let mut chosen = Isa::ALL.into_iter().rev().filter(|isa| *isa != Isa::Amx);
        chosen.find(|isa| isa.is_available()).unwrap_or(Isa::Scalar)
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Scalar => true,
            Isa::Neon => has_neon(),
            Isa::Avx2 => has_avx2(),
            Isa::Avx512 => has_avx2() && has_avx512(),
            Isa::Amx => has_avx2() && has_avx512() && has_amx(),
        }
    }

    /// The instructions of all that is not a product with many rows of activations.
    pub(crate) fn vectors(self) -> Isa {
        if self == Isa::Amx { Isa::Avx512 } else { self }
    }

    /// The same, or the best that this machine has instead.
    pub(crate) fn or_best(self) -> Isa {
        if self.is_available() { self } else { Isa::detect() }
    }
}

#[cfg(target_arch = "aarch64")]
fn has_neon() -> bool {
    std::arch::is_aarch64_feature_detected!("neon") && std::arch::is_aarch64_feature_detected!("dotprod")
}

#[cfg(not(target_arch = "aarch64"))]
fn has_neon() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vnni")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn has_amx() -> bool {
    amx::has_tiles() && amx::may_use_tiles()
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn has_amx() -> bool {
    false
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Scalar => "scalar",
            Isa::Neon => "neon",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
        })
    }
}
