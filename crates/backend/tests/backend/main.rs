//! Memory, claims, copies and lowering as callers see them.

mod claims;
mod copies;
mod fixtures;
mod foreign_memory;
mod host_memory;
mod hostile_buffers;
mod lowering;
mod private_layout;
mod queues;
mod random_copies;
mod read_ring;
mod stored_tensors;
