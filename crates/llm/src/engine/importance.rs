//! Summing what matrices are multiplied with, run by run.

use super::{Engine, Ready};
use crate::draft::Squares;
use crate::importance::ExpertSquares;
use crate::{Error, ImportanceSums};

impl Engine {
    /// What matrices were multiplied with in all runs so far; nothing without
    /// [`Settings::importance`](crate::Settings::importance).
    pub fn importance(&self) -> &ImportanceSums {
        &self.importance
    }

    /// Adds the inputs of a run.
    pub(super) fn sum_inputs(&mut self, ready: &Ready) -> Result<(), Error> {
        let tokens = ready.shape.tokens;
        for tap in ready.taps.iter() {
            match tap.squares {
                Squares::Sums(sums) => {
                    let sums = self.session.get_f32(ready.plan, sums)?;
                    tap.names.iter().for_each(|name| self.importance.add(name, &sums, tokens));
                }
                Squares::Experts { squares, chosen, columns, inputs, used, count } => {
                    let squares = self.session.get_f32(ready.plan, squares)?;
                    let chosen = self.session.get_i32(ready.plan, chosen)?;
                    let [columns, inputs, used, count] = [columns, inputs, used, count].map(|n| n as usize);
                    let (squares, chosen) = (squares.as_slice(), chosen.as_slice());
                    let run = ExpertSquares { columns, inputs, squares, chosen, used, count };
                    tap.names.iter().for_each(|name| self.importance.add_experts(name, run));
                }
            }
        }
        Ok(())
    }
}
