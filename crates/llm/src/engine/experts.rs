//! Counting which experts tokens choose, run by run.

use super::{Engine, Ready};
use crate::Error;
use crate::draft::Router;

impl Engine {
    /// Counts the experts of the tokens of a run, or of those whose logits are wanted where a layer sees no others. Further
    /// tokens only fill up the run.
    pub(super) fn count_experts(&mut self, ready: &Ready, fed: usize, wanted: usize) -> Result<(), Error> {
        let Some(counter) = &self.blueprint.settings.expert_counter else { return Ok(()) };
        for Router { layer, chosen, used, count, tokens } in ready.routers.iter() {
            let own = if *tokens == ready.shape.tokens { fed } else { wanted };
            self.numbers.resize(4 * *used as usize * own, 0);
            self.session.get_part(ready.plan, *chosen, 0, &mut self.numbers)?;
            let chosen = self.numbers.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes));
            counter.add(*layer, *count as usize, chosen);
        }
        Ok(())
    }
}
