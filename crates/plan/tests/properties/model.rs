//! A naive model of the free list: sorted vectors with linear scans.

use orlop_plan::{ChunkOffset, ChunkRule};

pub(crate) struct ModelChunk {
    pub(crate) blocks: Vec<(u64, u64)>,
    pub(crate) high_water: u64,
}

pub(crate) struct Model {
    pub(crate) align: u64,
    pub(crate) rule: ChunkRule,
    /// `None`: one chunk only, given at the start.
    pub(crate) max_chunk: Option<u64>,
    pub(crate) chunks: Vec<ModelChunk>,
}

impl Model {
    pub(crate) fn single(align: u64, bytes: u64) -> Self {
        let mut model = Self { align, rule: ChunkRule::Tightest, max_chunk: None, chunks: vec![] };
        model.chunks.push(ModelChunk { blocks: vec![(0, bytes)], high_water: 0 });
        model
    }

    pub(crate) fn chunked(align: u64, max_chunk: u64, rule: ChunkRule) -> Self {
        Self { align, rule, max_chunk: Some(max_chunk), chunks: vec![] }
    }

    pub(crate) fn pad(&self, size: u64) -> u64 {
        size.div_ceil(self.align) * self.align
    }

    pub(crate) fn allocate(&mut self, size: u64) -> Option<ChunkOffset> {
        let need = self.pad(size);
        let found = match self.rule {
            ChunkRule::Tightest => self.tightest_hole(need).or_else(|| self.cheapest_tail(need)),
            ChunkRule::Ggml => self.ggml_hole(need).or_else(|| self.ggml_tail(need)),
        };
        if need == 0 && found.is_none() {
            return Some(ChunkOffset::default());
        }
        let (c, b) = match found {
            Some(found) => found,
            None => (self.new_chunk(need)?, 0),
        };
        let chunk = &mut self.chunks[c];
        let (start, len) = chunk.blocks[b];
        chunk.blocks[b] = (start + need, len - need);
        let last = b + 1 == chunk.blocks.len();
        if len == need && !(last && self.rule == ChunkRule::Tightest) {
            chunk.blocks.remove(b);
        }
        if need > 0 {
            chunk.high_water = chunk.high_water.max(start + need);
        }
        Some(ChunkOffset { chunk: c as u32, offset: start })
    }

    pub(crate) fn release(&mut self, place: ChunkOffset, size: u64) {
        let len = self.pad(size);
        if len == 0 {
            return;
        }
        let blocks = &mut self.chunks[place.chunk as usize].blocks;
        for i in 0..blocks.len() {
            if blocks[i].0 + blocks[i].1 == place.offset {
                blocks[i].1 += len;
                if i + 1 < blocks.len() && blocks[i].0 + blocks[i].1 == blocks[i + 1].0 {
                    blocks[i].1 += blocks[i + 1].1;
                    blocks.remove(i + 1);
                }
                return;
            }
            if place.offset + len == blocks[i].0 {
                blocks[i].0 -= len;
                blocks[i].1 += len;
                return;
            }
        }
        let before = blocks.iter().position(|block| block.0 >= place.offset).unwrap_or(blocks.len());
        blocks.insert(before, (place.offset, len));
    }

    fn tightest_hole(&self, need: u64) -> Option<(usize, usize)> {
        let mut best: Option<(u64, (usize, usize))> = None;
        for (c, chunk) in self.chunks.iter().enumerate() {
            for b in 0..chunk.blocks.len() - 1 {
                let size = chunk.blocks[b].1;
                if size >= need && best.is_none_or(|(so_far, _)| size <= so_far) {
                    best = Some((size, (c, b)));
                }
            }
        }
        best.map(|(_, found)| found)
    }

    fn cheapest_tail(&self, need: u64) -> Option<(usize, usize)> {
        let mut paid = vec![];
        let mut grows = vec![];
        for (c, chunk) in self.chunks.iter().enumerate() {
            let b = chunk.blocks.len() - 1;
            let (start, room) = chunk.blocks[b];
            let slack = chunk.high_water.saturating_sub(start);
            if slack >= need {
                paid.push((slack, room, -(c as i64), (c, b)));
            } else if room >= need {
                grows.push((slack, room, -(c as i64), (c, b)));
            }
        }
        paid.into_iter().min().or(grows.into_iter().max()).map(|(.., found)| found)
    }

    fn ggml_hole(&self, need: u64) -> Option<(usize, usize)> {
        let mut found = None;
        for (c, chunk) in self.chunks.iter().enumerate() {
            let mut best = u64::MAX;
            for b in 0..chunk.blocks.len().saturating_sub(1) {
                let size = chunk.blocks[b].1;
                if size >= need && size <= best {
                    best = size;
                    found = Some((c, b));
                }
            }
        }
        found
    }

    fn ggml_tail(&self, need: u64) -> Option<(usize, usize)> {
        let mut best = i64::MIN;
        let mut found = None;
        for (c, chunk) in self.chunks.iter().enumerate() {
            let Some(&(start, size)) = chunk.blocks.last() else { continue };
            let reuse = chunk.high_water as i64 - start as i64 - need as i64;
            let better = (best < 0 && reuse > best) || (reuse >= 0 && reuse < best);
            if size >= need && better {
                best = reuse;
                found = Some((c, chunk.blocks.len() - 1));
            }
        }
        found
    }

    fn new_chunk(&mut self, need: u64) -> Option<usize> {
        let mut size = self.max_chunk?.max(need);
        if self.rule == ChunkRule::Ggml && self.chunks.len() == 15 {
            size = u64::MAX;
        }
        self.chunks.push(ModelChunk { blocks: vec![(0, size)], high_water: 0 });
        Some(self.chunks.len() - 1)
    }
}
