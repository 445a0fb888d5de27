//! Pictures of planning problems.

use orlop_plan::{Plan, Problem};

use crate::picture::{Block, Kind, Picture, Region, RegionKind};

impl Picture {
    /// The picture of a plan of buffers with lifetimes. `name` gives the name of a buffer by index.
    pub fn of_problem(
        title: &str,
        problem: &Problem,
        plan: &Plan,
        name: impl Fn(usize) -> String,
    ) -> Picture {
        let begin = problem.buffers.iter().map(|buffer| buffer.live.start).min().unwrap_or(0);
        let end = problem.buffers.iter().map(|buffer| buffer.live.end).max().unwrap_or(0);
        let note = match begin {
            0 => format!("planned by {}", plan.strategy.name()),
            begin => format!("planned by {}; step 0 is {begin} in the file", plan.strategy.name()),
        };
        let block = |(index, buffer): (usize, &orlop_plan::BufferSpec)| {
            let place = plan.places.get(index)?;
            Some(Block {
                name: name(index),
                kind: Kind::Activation,
                region: 0,
                chunk: place.chunk as usize,
                offset: place.offset,
                bytes: buffer.footprint().unwrap_or(buffer.size),
                live: buffer.live.start - begin..buffer.live.end - begin,
                producer: None,
                consumers: Vec::new(),
                reason: match buffer.fixed {
                    Some(_) => "fixed by the problem".to_owned(),
                    None => format!("placed by {}", plan.strategy.name()),
                },
                replaces: None,
                above: None,
            })
        };
        let region = Region {
            device: "memory".to_owned(),
            kind: RegionKind::Arena,
            chunks: plan.chunks.clone(),
            bound: Some(plan.bound),
        };
        let mut picture = Picture {
            title: title.to_owned(),
            note,
            steps: end - begin,
            step_names: Vec::new(),
            regions: vec![region],
            blocks: problem
                .buffers
                .iter()
                .enumerate()
                .filter_map(block)
                .filter(|block| block.bytes > 0)
                .collect(),
            ..Picture::default()
        };
        picture.stack();
        picture
    }
}
