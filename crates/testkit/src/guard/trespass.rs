//! What the guard reports.

use std::fmt;
use std::ops::Range;

/// A step that wrote, or would write, where it may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trespass {
    /// Position among the program's steps.
    pub step: usize,
    /// The device's name for the kernel.
    pub kernel: String,
    /// Name of the step's last node's result.
    pub node: String,
    /// What it did.
    pub offence: Offence,
}

/// What a step did that it may not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Offence {
    /// Bytes changed that are neither its results nor its temporaries.
    WroteOutside {
        /// Name of the buffer type.
        buffer_type: String,
        /// From the first to the last byte of one run of changes.
        bytes: Range<u64>,
        /// Whose they are.
        victim: Victim,
    },
    /// The plan puts one of its results where something lies that is still read later.
    OverwritesLive {
        /// The result or temporary.
        value: String,
        /// What is still read.
        victim: String,
    },
    /// The plan puts one of its results over an operand whose place it may not take.
    OverwritesOperand {
        /// The result or temporary.
        value: String,
        /// The operand.
        operand: String,
    },
    /// In place it computes something else than out of place.
    DiffersInPlace {
        /// The result.
        value: String,
        /// The first byte that differs.
        byte: u64,
    },
}

/// What the changed bytes belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Victim {
    /// The red zone after this value.
    Zone(String),
    /// This value's elements, or gaps between them.
    Value(String),
    /// Unused bytes.
    Unused,
}

impl fmt::Display for Trespass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trespass { step, kernel, node, offence } = self;
        write!(f, "step {step}, {kernel} for `{node}`, {offence}")
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Offence::WroteOutside { buffer_type, bytes, victim } => {
                write!(f, "wrote bytes {} to {} of {buffer_type}, {victim}", bytes.start, bytes.end)
            }
            Offence::OverwritesLive { value, victim } => {
                write!(f, "has `{value}` where `{victim}` lies, which is read later")
            }
            Offence::OverwritesOperand { value, operand } => {
                write!(f, "has `{value}` where `{operand}` lies, whose place it may not take")
            }
            Offence::DiffersInPlace { value, byte } => {
                write!(f, "gives another `{value}` in place than out of place, from byte {byte} on")
            }
        }
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Victim::Zone(name) => write!(f, "beyond `{name}`"),
            Victim::Value(name) => write!(f, "which are of `{name}`"),
            Victim::Unused => f.write_str("which are unused"),
        }
    }
}
