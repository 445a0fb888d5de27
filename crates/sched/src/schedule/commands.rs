//! A schedule as the commands that its queues are given.

use crate::{Schedule, Split, SplitId, TransferId};

/// One thing that a split's device is told, in the order of [`Schedule::commands`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Wait until another device has ended a split.
    Wait {
        /// The split that waits.
        split: SplitId,
        /// The split that must have ended.
        on: SplitId,
    },
    /// Make a transfer.
    Transfer {
        /// The split that needs it, or the one before.
        split: SplitId,
        /// The transfer.
        transfer: TransferId,
    },
    /// Run the split's nodes.
    Compute {
        /// The split.
        split: SplitId,
    },
    /// Mark a point that others can wait for.
    Record {
        /// The split.
        split: SplitId,
        /// How far it has come.
        point: Point,
    },
}

/// How far a split has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// Its transfers are made.
    Transferred,
    /// All of it is done.
    Ended,
}

impl Schedule {
    /// What the queues are given, split by split: transfers behind the waits that they need, the rest of the waits, the
    /// nodes. Transfers of resident weights are not among them.
    pub fn commands(&self) -> impl Iterator<Item = Command> + '_ {
        self.ids().flat_map(|split| self.commands_of(split))
    }

    /// The commands of one split.
    ///
    /// # Panics
    /// If the split is not one of this schedule.
    pub fn commands_of(&self, split: SplitId) -> SplitCommands<'_> {
        SplitCommands {
            schedule: self,
            id: split,
            split: &self[split],
            transfers: 0,
            waits: 0,
            stage: Stage::Transfers,
        }
    }
}

/// The commands of one split; see [`Schedule::commands_of`].
#[derive(Clone, Debug)]
pub struct SplitCommands<'a> {
    schedule: &'a Schedule,
    id: SplitId,
    split: &'a Split,
    /// Transfers and waits that were given.
    transfers: usize,
    waits: usize,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Transfers,
    Waits,
    Record,
    Done,
}

impl SplitCommands<'_> {
    fn wait(&mut self) -> Option<Command> {
        let on = *self.split.waits.get(self.waits)?;
        self.waits += 1;
        Some(Command::Wait { split: self.id, on })
    }
}

impl Iterator for SplitCommands<'_> {
    type Item = Command;

    fn next(&mut self) -> Option<Command> {
        let split = self.id;
        if self.stage == Stage::Transfers {
            let resident = |id: &&TransferId| self.schedule[**id].resident;
            self.transfers += self.split.transfers[self.transfers..].iter().take_while(resident).count();
            if let Some(transfer) = self.split.transfers.get(self.transfers).copied() {
                if self.waits < self.schedule[transfer].after
                    && let Some(wait) = self.wait()
                {
                    return Some(wait);
                }
                self.transfers += 1;
                return Some(Command::Transfer { split, transfer });
            }
            self.stage = Stage::Waits;
            return Some(Command::Record { split, point: Point::Transferred });
        }
        match self.stage {
            Stage::Waits => {
                let wait = self.wait();
                if wait.is_none() {
                    self.stage = Stage::Record;
                }
                Some(wait.unwrap_or(Command::Compute { split }))
            }
            Stage::Record => {
                self.stage = Stage::Done;
                Some(Command::Record { split, point: Point::Ended })
            }
            Stage::Transfers | Stage::Done => None,
        }
    }
}
