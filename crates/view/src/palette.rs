//! Colours of pages and drawings. Kinds differ in lightness as well as in hue, for colour-blind readers.

/// CSS properties of the light theme.
pub(crate) const LIGHT: &str = "--ground:#faf9f7;--panel:#ffffff;--ink:#1d2733;--soft:#5f6b7a;--line:#dfe3e8;\
--lane:#f0efec;--accent:#0b63c5;--mark:#b3261e;--bound:#1d2733;\
--k0:#3f68a3;--k1:#5db1a4;--k2:#8c97a4;--k3:#e2b04e;--k4:#bf4f36;--k5:#8a63b8";

/// CSS properties of the dark theme.
pub(crate) const DARK: &str = "--ground:#14181d;--panel:#1b2027;--ink:#e6eaef;--soft:#9aa6b4;--line:#2c343e;\
--lane:#1e242b;--accent:#7ab7ff;--mark:#ff8a7a;--bound:#e6eaef;\
--k0:#5b87c8;--k1:#6cc7b8;--k2:#8793a1;--k3:#dca63f;--k4:#d2664b;--k5:#a583d4";

/// Opacities of consecutive blocks of one kind, to distinguish neighbours.
pub(crate) const TINTS: [f64; 3] = [1.0, 0.84, 0.7];
