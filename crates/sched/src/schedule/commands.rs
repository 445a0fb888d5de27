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
    /// Bring something over.
    Copy {
        /// The split that needs it, or the one before.
        split: SplitId,
        /// What is brought.
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
    /// Its copies are made.
    Copied,
    /// All of it is done.
    Ended,
}

impl Schedule {
    /// What the queues are given, split by split: copies behind the waits that they need, the rest of the waits, the
    /// nodes. Copies that are resident on their device are not among them.
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
            copies: 0,
            waits: 0,
            stage: Stage::Copies,
        }
    }
}

/// The commands of one split; see [`Schedule::commands_of`].
#[derive(Clone, Debug)]
pub struct SplitCommands<'a> {
    schedule: &'a Schedule,
    id: SplitId,
    split: &'a Split,
    /// Copies and waits that were given.
    copies: usize,
    waits: usize,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Copies,
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
        if self.stage == Stage::Copies {
            let resident = |id: &&TransferId| self.schedule[**id].resident;
            self.copies += self.split.copies[self.copies..].iter().take_while(resident).count();
            if let Some(transfer) = self.split.copies.get(self.copies).copied() {
                if self.waits < self.schedule[transfer].after
                    && let Some(wait) = self.wait()
                {
                    return Some(wait);
                }
                self.copies += 1;
                return Some(Command::Copy { split, transfer });
            }
            self.stage = Stage::Waits;
            return Some(Command::Record { split, point: Point::Copied });
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
            Stage::Copies | Stage::Done => None,
        }
    }
}
