//! Numbers of splits and transfers.

use std::fmt;

/// A split of one schedule, by position; prints as `3`, debugs as `s3`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SplitId(u32);

/// A transfer of one schedule, by position; prints as `3`, debugs as `t3`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TransferId(u32);

macro_rules! position {
    ($id:ident, $letter:literal) => {
        impl $id {
            /// The one at a position.
            pub fn new(index: usize) -> $id {
                $id(u32::try_from(index).unwrap_or(u32::MAX))
            }

            /// Position in the schedule, for side tables.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }

        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

position!(SplitId, "s");
position!(TransferId, "t");
