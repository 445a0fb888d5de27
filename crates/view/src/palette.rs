//! Colours of page and drawing. Kinds differ in lightness as well as in hue, so that they stay apart for people who see
//! fewer hues.

/// Properties of CSS for light surroundings.
pub(crate) const LIGHT: &str = "--ground:#faf9f7;--panel:#ffffff;--ink:#1d2733;--soft:#5f6b7a;--line:#dfe3e8;\
--lane:#f0efec;--accent:#0b63c5;--mark:#b3261e;--bound:#1d2733;\
--k0:#3f68a3;--k1:#5db1a4;--k2:#8c97a4;--k3:#e2b04e;--k4:#bf4f36;--k5:#8a63b8";

/// Properties of CSS for dark surroundings.
pub(crate) const DARK: &str = "--ground:#14181d;--panel:#1b2027;--ink:#e6eaef;--soft:#9aa6b4;--line:#2c343e;\
--lane:#1e242b;--accent:#7ab7ff;--mark:#ff8a7a;--bound:#e6eaef;\
--k0:#5b87c8;--k1:#6cc7b8;--k2:#8793a1;--k3:#dca63f;--k4:#d2664b;--k5:#a583d4";

/// How strongly neighbours of one kind are drawn, in turn, so that they can be told apart.
pub(crate) const TINTS: [f64; 3] = [1.0, 0.84, 0.7];
