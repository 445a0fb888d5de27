//! This CPU's name and instruction set extensions.

/// The detected ones of the given names.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! detected {
    ($detect:path: $($name:tt)*) => {{
        use $detect as detect;
        [$(($name, detect!($name))),*].into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
    }};
}

/// The instruction set extensions of this CPU that matter for models.
pub(crate) fn features() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    return detected!(std::arch::is_x86_feature_detected: "avx" "f16c" "fma" "avx2" "avxvnni" "avx512f" "avx512bw"
        "avx512vl" "avx512vnni" "avx512bf16" "avx512fp16");
    #[cfg(target_arch = "aarch64")]
    return detected!(std::arch::is_aarch64_feature_detected: "neon" "fp16" "dotprod" "i8mm" "bf16" "sve" "sve2");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return Vec::new();
}

/// The name of this CPU, where the system tells.
pub(crate) fn name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
