//! A linked list in arrays, for items that are merged with their neighbours.

/// No neighbor.
const NONE: u32 = u32::MAX;

struct Link<T> {
    item: T,
    before: u32,
    after: u32,
}

/// Items in a row that are merged: each keeps its index, and knows its neighbors.
///
/// Indices are those of [`Chain::fill`]; an item that was merged into its left neighbor is gone.
pub(super) struct Chain<T> {
    links: Vec<Link<T>>,
}

impl<T> Default for Chain<T> {
    fn default() -> Chain<T> {
        Chain { links: Vec::new() }
    }
}

impl<T: Copy> Chain<T> {
    /// Starts again with these items, fewer than 2³².
    pub(super) fn fill(&mut self, items: impl Iterator<Item = T>) {
        self.links.clear();
        self.links.extend(items.zip(0u32..).map(|(item, place)| Link {
            item,
            before: place.wrapping_sub(1),
            after: place + 1,
        }));
        if let Some(last) = self.links.last_mut() {
            last.after = NONE;
        }
    }

    /// How many places there were.
    pub(super) fn len(&self) -> u32 {
        self.links.len() as u32
    }

    fn link(&self, place: u32) -> Option<&Link<T>> {
        self.links.get(place as usize)
    }

    /// The item at a place and the next one; `None` at the end, and for places that are gone.
    pub(super) fn pair(&self, place: u32) -> Option<(T, T)> {
        let left = self.link(place)?;
        Some((left.item, self.link(left.after)?.item))
    }

    /// The place before this one.
    pub(super) fn before(&self, place: u32) -> Option<u32> {
        self.link(place).map(|link| link.before).filter(|before| *before != NONE)
    }

    /// Makes one item of a place and the next one, if there is a next one.
    pub(super) fn merge(&mut self, place: u32, item: T) {
        let Some(right) = self.link(place).and_then(|left| self.link(left.after).map(|_| left.after)) else {
            return;
        };
        let gone = &mut self.links[right as usize];
        let after = std::mem::replace(&mut gone.after, NONE);
        self.links[place as usize].item = item;
        self.links[place as usize].after = after;
        if let Some(next) = self.links.get_mut(after as usize) {
            next.before = place;
        }
    }

    /// The items that are there now.
    pub(super) fn items(&self) -> impl Iterator<Item = T> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let link = self.link(at)?;
            at = link.after;
            Some(link.item)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_places_are_gone_and_neighbours_know() {
        let mut chain = Chain::default();
        chain.fill([1, 2, 3, 4].into_iter());
        assert_eq!((chain.pair(0), chain.pair(3), chain.before(0)), (Some((1, 2)), None, None));
        chain.merge(1, 23);
        assert_eq!((chain.pair(2), chain.pair(1), chain.before(3)), (None, Some((23, 4)), Some(1)));
        chain.merge(1, 234);
        chain.merge(1, 9);
        assert_eq!(chain.items().collect::<Vec<_>>(), [1, 234]);
        chain.fill(std::iter::empty());
        assert_eq!(chain.items().count(), 0);
    }
}
