//! Instruction set extensions of this CPU.

/// The detected ones of the given names.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! detected {
    ($detect:path: $($name:tt)*) => {{
        use $detect as detect;
        [$(($name, detect!($name))),*].into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
    }};
}

/// The instruction set extensions of this CPU that matter for models.
pub(super) fn features() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    return detected!(std::arch::is_x86_feature_detected: "avx" "f16c" "fma" "avx2" "avxvnni" "avx512f" "avx512bw"
        "avx512vl" "avx512vnni" "avx512bf16" "avx512fp16");
    #[cfg(target_arch = "aarch64")]
    return detected!(std::arch::is_aarch64_feature_detected: "neon" "fp16" "dotprod" "i8mm" "bf16" "sve" "sve2");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return Vec::new();
}
