//! One file for each command.

pub(crate) mod inspect;
pub(crate) mod plan;
