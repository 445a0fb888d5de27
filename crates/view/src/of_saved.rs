//! Pictures of saved plans.

use orlop_alloc::SavedMemoryPlan;

use crate::picture::{Block, Kind, Picture, Region, RegionKind};

impl Picture {
    /// The picture of a plan without its graph: storages are named by the id of their first value.
    pub fn of_saved(title: &str, saved: &SavedMemoryPlan) -> Picture {
        let region = |(index, arena): (usize, &orlop_alloc::ArenaPlan)| Region {
            device: format!("memory {index}"),
            kind: RegionKind::Arena,
            chunks: arena.chunks.clone(),
            bound: Some(arena.bound),
        };
        let chunks = |block: &Block| saved.arenas.get(block.region).map_or(0, |arena| arena.chunks.len());
        let block = |storage: &orlop_alloc::PlannedStorage| Block {
            name: storage.values.first().map_or_else(|| "unused".to_owned(), |value| format!("{value:?}")),
            kind: Kind::Activation,
            region: storage.place.arena.index(),
            chunk: storage.place.chunk as usize,
            offset: storage.place.offset,
            bytes: storage.bytes,
            live: storage.live.start as u64..storage.live.end as u64,
            producer: None,
            consumers: Vec::new(),
            reason: "from a saved plan".to_owned(),
            replaces: None,
            above: None,
        };
        // The plan was not checked against its graph.
        let sound = |block: &Block| block.bytes > 0 && block.chunk < chunks(block) && !block.live.is_empty();
        let blocks: Vec<Block> = saved.storages.iter().map(block).filter(sound).collect();
        let mut picture = Picture {
            title: title.to_owned(),
            note: "a saved plan".to_owned(),
            steps: blocks.iter().map(|block| block.live.end).max().unwrap_or(1),
            step_names: Vec::new(),
            regions: saved.arenas.iter().enumerate().map(region).collect(),
            blocks,
            ..Picture::default()
        };
        picture.stack();
        picture
    }
}
