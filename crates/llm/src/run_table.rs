//! Which run takes which tokens: runs of the shapes there are, so that all of them together take least time.

use std::iter;

use orlop_sched::ExpectedData;

use crate::planned_graph::PlannedGraph;
use crate::{BatchShape, Blueprint};

/// Rows that a product computes in about the time in which it reads its weights, on any device. Stated speeds do not say so.
const READ_BOUND: u64 = 16;

/// What a run takes, and its predicted time.
#[derive(Clone, Copy, Debug)]
struct RunCost {
    tokens: u64,
    seconds: f64,
}

/// For each count of tokens, the run that takes the first of them, so that all runs together take least predicted time.
#[derive(Debug)]
struct RunTable {
    /// The shape of the run and the tokens that it takes, for 1, 2, 3 … tokens.
    first: Vec<(usize, usize)>,
}

impl RunTable {
    /// For runs of these shapes. If runs cannot be filled up (`pad`), one of them takes a single token.
    fn new(runs: &[(usize, RunCost)], pad: bool) -> RunTable {
        let most = runs.iter().map(|(_, run)| run.tokens).max().unwrap_or(0);
        let mut first = Vec::with_capacity(most as usize);
        // Seconds of all runs, and their tokens, filled-up ones included.
        let mut least = vec![(0.0f64, 0)];
        for tokens in 1..=most {
            // Of equal ones the largest.
            let runs = runs.iter().rev().filter(|(_, run)| pad || run.tokens <= tokens);
            let costs = runs.map(|(shape, run)| {
                let taken = run.tokens.min(tokens);
                let (seconds, rows) = least[(tokens - taken) as usize];
                ((run.seconds + seconds, run.tokens + rows), (*shape, taken as usize))
            });
            let best = costs
                .min_by(|((one, rows), _), ((other, others), _)| one.total_cmp(other).then(rows.cmp(others)));
            let Some((cost, run)) = best else { break };
            least.push(cost);
            first.push(run);
        }
        RunTable { first }
    }

    /// The shape that takes the first of some tokens, and how many it takes.
    fn first(&self, tokens: usize) -> Option<(usize, usize)> {
        let last = self.first.len().min(tokens).checked_sub(1)?;
        Some(self.first[last])
    }
}

/// The tables of a blueprint's shapes.
#[derive(Debug)]
pub(crate) struct RunTables {
    shapes: Vec<BatchShape>,
    pad: bool,
    /// For tokens of which one row of logits is wanted, or none.
    one: RunTable,
    /// For tokens of several sequences: a run has a row for each.
    several: RunTable,
    /// For tokens of which all rows are wanted.
    all: RunTable,
}

impl RunTables {
    fn new(shapes: &[BatchShape], seconds: &[f64], sequences: u64, pad: bool) -> RunTables {
        let table = |fits: &dyn Fn(&BatchShape) -> bool| {
            let runs = shapes.iter().zip(seconds).enumerate().filter(|(_, (shape, _))| fits(shape));
            let cost = |(index, (shape, seconds)): (usize, (&BatchShape, &f64))| {
                (index, RunCost { tokens: shape.tokens, seconds: *seconds })
            };
            RunTable::new(&runs.map(cost).collect::<Vec<_>>(), pad)
        };
        RunTables {
            shapes: shapes.to_vec(),
            pad,
            one: table(&|_| true),
            several: table(&|shape| shape.outputs >= sequences.min(shape.tokens)),
            all: table(&|shape| shape.outputs == shape.tokens),
        }
    }

    /// The shape of a run that gives all rows of logits of some tokens, and how many of them it takes.
    pub(crate) fn verify(&self, tokens: usize) -> (usize, usize) {
        let fits = |shape: &BatchShape| match self.pad {
            true => shape.tokens >= tokens as u64,
            false => shape.tokens == tokens as u64,
        };
        let shape = self.shapes.iter().position(|shape| shape.outputs == shape.tokens && fits(shape));
        shape.map_or_else(|| self.first(iter::repeat_n(true, tokens)), |shape| (shape, tokens))
    }

    /// The shape of the next run for tokens of which some rows of logits are wanted, and how many of them it takes.
    pub(crate) fn first(&self, wanted: impl Iterator<Item = bool> + Clone) -> (usize, usize) {
        let tokens = wanted.clone().count();
        let table =
            if wanted.clone().filter(|wanted| *wanted).count() > 1 { &self.several } else { &self.one };
        let (shape, taken) = table.first(tokens).unwrap_or_default();
        let within = within(wanted.take(taken), self.shapes.get(shape).map_or(0, |shape| shape.outputs));
        if within == taken {
            return (shape, taken);
        }
        let (small, most) = self.all.first(tokens).unwrap_or_default();
        if self.pad && within >= most { (shape, within) } else { (small, most) }
    }
}

/// How many of the first tokens want no more than `outputs` rows.
fn within(wanted: impl Iterator<Item = bool>, outputs: u64) -> usize {
    let mut rows = 0;
    let fits = |wanted: &bool| {
        rows += u64::from(*wanted);
        rows <= outputs
    };
    wanted.take_while(fits).count()
}

impl Blueprint {
    /// Which run takes which tokens.
    pub(crate) fn run_tables(&self) -> RunTables {
        // Tokens that fill up a run would count for importance.
        let pad = !self.model.config().keeps_states() && !self.settings.importance;
        let shapes: Vec<BatchShape> = self.shapes().collect();
        let least =
            self.run_seconds(&self.prompt) * READ_BOUND.min(self.batch()) as f64 / self.batch() as f64;
        let seconds: Vec<f64> = self.graphs.iter().map(|graph| self.run_seconds(graph).max(least)).collect();
        RunTables::new(&shapes, &seconds, self.settings.sequences, pad)
    }

    /// Predicted seconds of a run whose tokens see little: those that fill it up see nothing.
    fn run_seconds(&self, graph: &PlannedGraph) -> f64 {
        let run = graph.planned.predict(&self.machine, &ExpectedData::seeing(1));
        self.with_file(run, graph.graph.shape.tokens).seconds
    }

    /// The runs in which a prompt is fed: the shape of each, and how many tokens it takes.
    pub(crate) fn runs_of(&self, tokens: u64) -> Vec<(usize, u64)> {
        let (tables, mut left, mut runs) = (self.run_tables(), tokens, Vec::new());
        while left > 0 {
            let next = (1..=left.min(self.batch())).map(|token| token == left);
            let (shape, taken) = tables.first(next);
            runs.push((shape, taken.max(1) as u64));
            left -= taken.max(1) as u64;
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [u64; 4] = [1, 8, 64, 512];

    /// As on a device that reads its weights in the time of `read` tokens.
    fn seconds(sizes: &[u64], read: u64) -> Vec<f64> {
        sizes.iter().map(|tokens| (*tokens).max(read) as f64).collect()
    }

    fn tables(sizes: &[u64], read: u64, pad: bool) -> RunTables {
        let shapes: Vec<BatchShape> =
            sizes.iter().map(|tokens| BatchShape { tokens: *tokens, outputs: *tokens }).collect();
        RunTables::new(&shapes, &seconds(sizes, read), 1, pad)
    }

    /// Tokens of all runs, filled-up ones included, and the time they take.
    fn runs(tables: &RunTables, read: u64, mut tokens: usize) -> (Vec<u64>, f64) {
        let mut runs = Vec::new();
        while tokens > 0 {
            let (shape, taken) = tables.first((1..=tokens).map(|token| token == tokens));
            runs.push(tables.shapes[shape].tokens);
            tokens -= taken;
        }
        let time = seconds(&runs, read).iter().sum();
        (runs, time)
    }

    #[test]
    fn tokens_are_filled_up_where_that_takes_less_time() {
        let tables = tables(&SIZES, 16, true);
        for (tokens, expected) in [
            (1, vec![1]),
            (2, vec![8]),
            (8, vec![8]),
            (9, vec![1, 8]),
            (40, vec![64]),
            (64, vec![64]),
            (65, vec![1, 64]),
            (257, vec![1, 64, 64, 64, 64]),
            (470, vec![8, 8, 8, 64, 64, 64, 64, 64, 64, 64]),
            (490, vec![512]),
            (512, vec![512]),
            (5000, [vec![8], vec![64; 6], vec![512; 9]].concat()),
        ] {
            let (mut found, _) = runs(&tables, 16, tokens);
            found.sort_unstable();
            assert_eq!(found, expected, "{tokens}");
        }
    }

    #[test]
    fn no_count_of_tokens_takes_much_more_time_than_its_tokens() {
        let sizes: Vec<u64> = (0..10).map(|power| 1 << power).collect();
        for read in [1, 16, 64, 300] {
            let tables = tables(&sizes, read, true);
            let mut before = 0.0;
            for tokens in 1..=512 {
                let (_, time) = runs(&tables, read, tokens);
                assert!(
                    time <= (tokens as u64 + read) as f64,
                    "one more reading of weights: {tokens}: {time}"
                );
                assert!(time >= before, "fewer tokens take no more: {tokens}: {time}");
                before = time;
            }
        }
    }

    #[test]
    fn states_skip_no_token() {
        let tables = tables(&SIZES, 16, false);
        for (tokens, run) in [(1, 1), (7, 1), (63, 8), (100, 64), (600, 512)] {
            let (index, took) = tables.first((1..=tokens).map(|token| token == tokens));
            assert_eq!((tables.shapes[index].tokens, took), (run, run as usize), "{tokens}");
        }
    }

    #[test]
    fn a_run_has_as_many_rows_of_logits_as_are_wanted() {
        let shapes = [(1, 1), (8, 8), (64, 1), (64, 4), (512, 1), (512, 4)]
            .map(|(tokens, outputs)| BatchShape { tokens, outputs });
        let seconds = shapes.map(|shape| shape.tokens.max(16) as f64 + 0.1 * shape.outputs as f64);
        let tables = RunTables::new(&shapes, &seconds, 4, true);
        let first = |tokens: usize, wanted: &[usize]| {
            let (shape, taken) = tables.first((0..tokens).map(|token| wanted.contains(&token)));
            (shapes[shape].tokens, shapes[shape].outputs, taken)
        };
        assert_eq!(first(512, &[511]), (512, 1, 512), "one sequence is active");
        assert_eq!(first(512, &[]), (512, 1, 512));
        assert_eq!(first(60, &[10, 20, 59]), (64, 4, 60));
        assert_eq!(first(60, &[10, 20, 30, 40, 50]), (64, 4, 50), "the fifth row is for the next run");
        let all: Vec<usize> = (0..60).collect();
        assert_eq!(first(60, &all), (8, 8, 8));
        // A draft is verified by one run, as far as there is one.
        let verify = |tokens| tables.verify(tokens);
        assert_eq!([verify(1), verify(2), verify(8), verify(9)], [(0, 1), (1, 2), (1, 8), (1, 8)]);
    }
}
