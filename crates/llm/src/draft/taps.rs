//! What matrices are multiplied with, as outputs of a graph: the sums of squares that importance data is made of.

use orlop_graph::TensorId;

use super::GraphDraft;

/// The inputs of one or more matrices.
#[derive(Clone, Debug)]
pub(crate) struct Tap {
    /// The matrices.
    pub(crate) names: Vec<String>,
    pub(crate) squares: Squares,
    /// What was tapped.
    input: TensorId,
}

/// Squares of inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Squares {
    /// The sum over all tokens, for each column.
    Sums(TensorId),
    /// Of each token's experts, `[columns, inputs, tokens]`, and which these are, `[used, tokens]`.
    Experts {
        squares: TensorId,
        chosen: TensorId,
        columns: u64,
        /// Inputs of a token: one for all of its experts, or one for each.
        inputs: u64,
        used: u64,
        /// How many there are.
        count: u64,
    },
}

impl GraphDraft<'_> {
    /// Notes that a matrix of a layer is multiplied with `x`.
    pub(super) fn tap(&mut self, name: &str, x: TensorId) {
        if !self.is_tapped(name, x) {
            return;
        }
        let [columns, ..] = self.b.desc(x).extents;
        let rows = self.b.desc(x).elements() / columns.max(1);
        let squares = self.b.sqr(x);
        let squares = self.b.reshape(squares, &[columns, rows]);
        let by_column = self.b.transpose(squares);
        let by_column = self.b.cont(by_column);
        let sums = self.b.sum_rows(by_column);
        self.b.output(sums);
        self.taps.push(Tap { names: vec![name.to_owned()], squares: Squares::Sums(sums), input: x });
    }

    /// As that, for matrices of experts.
    pub(crate) fn tap_experts(&mut self, name: &str, x: TensorId, chosen: TensorId, count: u64) {
        if !self.is_tapped(name, x) {
            return;
        }
        let [columns, inputs, ..] = self.b.desc(x).extents;
        let used = self.b.desc(chosen).extents[0];
        let (squares, chosen) = (self.b.sqr(x), self.b.cont(chosen));
        self.b.output(squares);
        self.b.output(chosen);
        let squares = Squares::Experts { squares, chosen, columns, inputs, used, count };
        self.taps.push(Tap { names: vec![name.to_owned()], squares, input: x });
    }

    /// Whether a new tap is needed: matrices of one input share it.
    fn is_tapped(&mut self, name: &str, x: TensorId) -> bool {
        if !self.spec.taps || !name.starts_with("blk.") {
            return false;
        }
        match self.taps.iter_mut().find(|tap| tap.input == x) {
            Some(tap) => {
                tap.names.push(name.to_owned());
                false
            }
            None => true,
        }
    }
}
