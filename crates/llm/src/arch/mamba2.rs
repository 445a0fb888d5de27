use orlop_graph::TensorId;

use crate::Error;
use crate::draft::GraphDraft;

/// Norm and state-space mixing, added to what came in; no attention, no feed-forward part.
pub(super) fn build(draft: &mut GraphDraft<'_>) -> Result<TensorId, Error> {
    let mut x = draft.embedding()?;
    for layer in 0..draft.layers() {
        draft.enter(layer);
        let normed = draft.norm(&format!("blk.{layer}.attn_norm"), x)?;
        let mixed = draft.state_space(layer, normed)?;
        let (mixed, kept) = draft.wanted_rows(layer, mixed, x);
        x = draft.b.add(mixed, kept);
        draft.b.name(x, format!("blk.{layer}.out"));
    }
    draft.logits(x)
}
