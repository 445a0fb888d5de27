//! Read-only bytes with any owner, which readers of files hand to buffers without a copy.

use std::sync::Arc;

/// Bytes that their owner keeps alive and unchanged: a mapped file, a vector.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;
