//! Pages of the KV cache: which are in use, and by how many sequences.

/// Rows of the KV cache in a page. Sequences share whole pages ([PagedAttention](https://arxiv.org/abs/2309.06180)).
pub const PAGE_ROWS: u64 = 64;

/// Pages that hold some rows of one sequence.
pub(crate) fn pages_of(rows: u64) -> u64 {
    rows.div_ceil(PAGE_ROWS)
}

/// The pages of some layers' caches.
#[derive(Clone, Debug)]
pub(crate) struct PagePool {
    /// How many sequences use each page.
    uses: Vec<u32>,
    /// No page before this one is free.
    free_from: usize,
    free: usize,
}

impl PagePool {
    pub(crate) fn new(pages: u64) -> PagePool {
        let pages = pages as usize;
        PagePool { uses: vec![0; pages], free_from: 0, free: pages }
    }

    pub(crate) fn free(&self) -> usize {
        self.free
    }

    /// All pages.
    pub(crate) fn len(&self) -> usize {
        self.uses.len()
    }

    /// Pages that several sequences use.
    pub(crate) fn shared(&self) -> usize {
        self.uses.iter().filter(|uses| **uses > 1).count()
    }

    /// How many sequences use a page.
    pub(crate) fn uses(&self, page: u32) -> usize {
        self.uses[page as usize] as usize
    }

    pub(crate) fn is_shared(&self, page: u32) -> bool {
        self.uses(page) > 1
    }

    /// The first free page, so that the pages of a sequence alone follow each other.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let page = (self.free_from..self.uses.len()).find(|page| self.uses[*page] == 0)?;
        self.uses[page] = 1;
        self.free -= 1;
        self.free_from = page + 1;
        Some(page as u32)
    }

    /// One more sequence uses a page.
    pub(crate) fn share(&mut self, page: u32) {
        self.uses[page as usize] += 1;
    }

    /// One sequence less uses a page.
    pub(crate) fn release(&mut self, page: u32) {
        let uses = &mut self.uses[page as usize];
        *uses -= 1;
        if *uses == 0 {
            self.free += 1;
            self.free_from = self.free_from.min(page as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_page_is_taken_and_a_shared_one_stays() {
        let mut pool = PagePool::new(3);
        assert_eq!([pool.take(), pool.take()], [Some(0), Some(1)]);
        pool.share(0);
        pool.release(0);
        assert!(!pool.is_shared(0));
        assert_eq!((pool.free(), pool.take(), pool.take()), (1, Some(2), None));
        pool.release(1);
        pool.release(0);
        assert_eq!((pool.take(), pool.take(), pool.free()), (Some(0), Some(1), 0));
    }
}
