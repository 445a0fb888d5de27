//! The prefix tree: which pages of the cache hold which tokens. A node is a page of up to `page_rows` tokens; the nodes from
//! the root to it are the tokens before. Tokens are compared, not hashes.

use std::collections::BTreeMap;

/// A node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeId(usize);

/// Pages of running sequences, and of finished ones that are kept for later requests.
///
/// What is kept is evicted by [GreedyDual-Size-Frequency](https://www.hpl.hp.com/techreports/98/HPL-98-69R1.html): a page is worth
/// the cost of computing it again × how often it was used, and ages as others are evicted.
#[derive(Clone, Debug)]
pub struct PrefixTree<S> {
    page_rows: usize,
    attention: f64,
    nodes: Vec<Option<Node<S>>>,
    roots: BTreeMap<u64, Vec<NodeId>>,
    kept: Vec<Kept<S>>,
    /// The priority of the last page that was evicted.
    age: f64,
}

#[derive(Clone, Debug)]
struct Node<S> {
    salt: u64,
    parent: Option<NodeId>,
    children: Vec<NodeId>,
    tokens: Vec<u32>,
    /// Tokens before it.
    depth: usize,
    /// Its rows are in the cache.
    computed: bool,
    /// Sequences whose pages include it, and how many of them run.
    holders: Vec<S>,
    running: usize,
    uses: u32,
    priority: f64,
}

/// A finished sequence.
#[derive(Clone, Debug)]
struct Kept<S> {
    sequence: S,
    path: Vec<NodeId>,
}

/// The longest prefix of a text that the tree has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Match {
    /// Whole pages.
    pub(crate) path: Vec<NodeId>,
    /// A page whose first tokens match, and their number.
    pub(crate) partial: Option<(NodeId, usize)>,
    /// Tokens.
    pub(crate) len: usize,
    /// More of it is being computed for another request.
    pub(crate) pending: bool,
}

/// What is to be done with a sequence whose pages are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction<S> {
    Truncate(S, usize),
    RequestEnd(S),
}

impl<S: Copy + Eq> PrefixTree<S> {
    pub(crate) fn new(page_rows: usize, attention: f64) -> PrefixTree<S> {
        let (nodes, roots, kept) = (Vec::new(), BTreeMap::new(), Vec::new());
        PrefixTree { page_rows, attention, nodes, roots, kept, age: 0.0 }
    }

    fn node(&self, id: NodeId) -> &Node<S> {
        self.nodes[id.0].as_ref().expect("ids of removed nodes are not kept")
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node<S> {
        self.nodes[id.0].as_mut().expect("ids of removed nodes are not kept")
    }

    fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.is_some()).map(|(id, _)| NodeId(id))
    }

    /// Pages that are in the tree.
    pub fn pages(&self) -> usize {
        self.ids().count()
    }

    /// Pages that can be evicted, because no running sequence uses them.
    pub fn evictable(&self) -> usize {
        self.ids().filter(|id| self.node(*id).running == 0).count()
    }

    /// Finished sequences that are kept.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Finished sequences that are kept, and how many tokens of each.
    pub(crate) fn kept_tokens(&self) -> impl Iterator<Item = (S, usize)> {
        let end = |id: &NodeId| self.node(*id).depth + self.node(*id).tokens.len();
        self.kept.iter().map(move |kept| (kept.sequence, kept.path.last().map_or(0, end)))
    }

    /// Of some nodes, how many could be evicted.
    pub(crate) fn evictable_of(&self, path: &[NodeId]) -> usize {
        path.iter().filter(|id| self.node(**id).running == 0).count()
    }

    /// Tokens that would have to be computed again if a running sequence lost what only it has.
    pub(crate) fn own_tokens(&self, path: &[NodeId], fed: usize) -> usize {
        let shared = path.iter().take_while(|id| self.node(**id).holders.len() > 1).count();
        fed.saturating_sub(shared * self.page_rows)
    }

    /// For a picture: of each node, the tokens it holds, the number of running sequences that use it, and whether its rows are
    /// computed.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (NodeId, usize, usize, bool)> {
        self.ids().map(|id| {
            let node = self.node(id);
            (id, node.tokens.len(), node.running, node.computed)
        })
    }

    /// The longest prefix of at most `limit` tokens.
    pub(crate) fn find(&self, salt: u64, tokens: &[u32], limit: usize) -> Match {
        let mut found = Match::default();
        let none = Vec::new();
        let mut children = self.roots.get(&salt).unwrap_or(&none);
        loop {
            let rest = &tokens[found.len..limit.max(found.len).min(tokens.len())];
            let whole = |id: &&NodeId| {
                let node = self.node(**id);
                node.tokens.len() == self.page_rows && rest.starts_with(&node.tokens)
            };
            // Equal pages may have been computed twice.
            let next = children.iter().filter(whole).max_by_key(|id| self.node(**id).computed);
            let Some(next) = next else { break };
            if !self.node(*next).computed {
                found.pending = true;
                return found;
            }
            found.path.push(*next);
            found.len += self.page_rows;
            children = &self.node(*next).children;
        }
        let rest = &tokens[found.len..limit.max(found.len).min(tokens.len())];
        let common = |id: &NodeId| self.node(*id).tokens.iter().zip(rest).take_while(|(a, b)| a == b).count();
        let computed = children.iter().filter(|id| self.node(**id).computed);
        let best = computed.map(|id| (common(id), *id)).max_by_key(|(common, _)| *common);
        if let Some((common, id)) = best.filter(|(common, _)| *common > 0) {
            found.partial = Some((id, common));
            found.len += common;
        }
        found
    }

    /// A sequence that begins with a match.
    pub(crate) fn source(&self, found: &Match) -> Option<S> {
        let last = found.partial.map(|(id, _)| id).or(found.path.last().copied())?;
        self.node(last).holders.first().copied()
    }

    /// Adds a running sequence that shares the pages of a match. The whole pages of `tokens` behind it are to be computed.
    pub(crate) fn run(&mut self, salt: u64, sequence: S, found: &Match, tokens: &[u32]) -> Vec<NodeId> {
        if let Some((id, _)) = found.partial {
            self.touch(id);
        }
        for id in &found.path {
            self.touch(*id);
            let node = self.node_mut(*id);
            node.running += 1;
            node.holders.push(sequence);
        }
        let mut path = found.path.clone();
        let begin = path.len() * self.page_rows;
        for page in tokens[begin..].chunks_exact(self.page_rows) {
            let id = self.add(salt, path.last().copied(), page, sequence);
            self.node_mut(id).running = 1;
            path.push(id);
        }
        path
    }

    fn add(&mut self, salt: u64, parent: Option<NodeId>, tokens: &[u32], sequence: S) -> NodeId {
        let depth = parent.map_or(0, |parent| self.node(parent).depth + self.node(parent).tokens.len());
        let node = Node {
            salt,
            parent,
            children: Vec::new(),
            tokens: tokens.to_vec(),
            depth,
            computed: false,
            holders: vec![sequence],
            running: 0,
            uses: 0,
            priority: 0.0,
        };
        let id = NodeId(self.nodes.iter().position(Option::is_none).unwrap_or(self.nodes.len()));
        match self.nodes.get_mut(id.0) {
            Some(place) => *place = Some(node),
            None => self.nodes.push(Some(node)),
        }
        match parent {
            Some(parent) => self.node_mut(parent).children.push(id),
            None => self.roots.entry(salt).or_default().push(id),
        }
        self.touch(id);
        id
    }

    /// Counts a use of a page.
    fn touch(&mut self, id: NodeId) {
        let (age, attention) = (self.age, self.attention);
        let node = self.node_mut(id);
        node.uses += 1;
        let cost = node.tokens.len() as f64 * (1.0 + attention * node.depth as f64);
        node.priority = age + f64::from(node.uses) * cost;
    }

    /// The first `fed` tokens of a path are in the cache.
    pub(crate) fn computed(&mut self, path: &[NodeId], fed: usize) {
        for id in path.iter().rev() {
            let node = self.node_mut(*id);
            if node.depth + node.tokens.len() <= fed {
                if node.computed {
                    break;
                }
                node.computed = true;
            }
        }
    }

    /// Keeps a running sequence that has ended with these tokens in the cache. The result are sequences that are no longer of
    /// use, and to be ended.
    pub(crate) fn keep(
        &mut self,
        salt: u64,
        sequence: S,
        mut path: Vec<NodeId>,
        tokens: &[u32],
    ) -> Vec<Eviction<S>> {
        self.computed(&path, tokens.len());
        // Pages that were announced, but not computed.
        while let Some(last) = path.last().copied().filter(|last| !self.node(*last).computed) {
            path.pop();
            self.release(last, sequence, true);
        }
        let begin = path.last().map_or(0, |last| self.node(*last).depth + self.node(*last).tokens.len());
        path.iter().for_each(|id| self.nodes[id.0].as_mut().expect("on the path").running -= 1);
        for page in tokens[begin..].chunks(self.page_rows) {
            let id = self.add(salt, path.last().copied(), page, sequence);
            self.node_mut(id).computed = true;
            path.push(id);
        }
        let mut evictions = Vec::new();
        if path.is_empty() {
            return vec![Eviction::RequestEnd(sequence)];
        }
        // Partial pages that this sequence has, too.
        for (level, id) in path.iter().enumerate() {
            let siblings = match level.checked_sub(1) {
                None => self.roots.get(&salt),
                Some(parent) => Some(&self.node(path[parent]).children),
            };
            let same = |other: &&NodeId| {
                let node = self.node(**other);
                *other != id
                    && node.running == 0
                    && node.children.is_empty()
                    && self.node(*id).tokens.starts_with(&node.tokens)
            };
            let same: Vec<NodeId> = siblings.into_iter().flatten().filter(same).copied().collect();
            evictions.extend(same.into_iter().map(|other| self.evict_leaf(other)));
        }
        let last = path.last().copied();
        self.kept.push(Kept { sequence, path });
        if let Some(last) = last.filter(|last| self.is_known(salt, *last)) {
            evictions.push(self.evict_leaf(last));
        }
        // Sequences that are the beginning of another one.
        let redundant = self.kept.iter().filter(|kept| !self.is_own(kept)).map(|kept| kept.sequence);
        let redundant: Vec<S> = redundant.collect();
        evictions.extend(redundant.into_iter().map(|sequence| self.drop_kept(sequence)));
        evictions
    }

    /// Whether another page has the tokens of a leaf.
    fn is_known(&self, salt: u64, leaf: NodeId) -> bool {
        let siblings = match self.node(leaf).parent {
            None => self.roots.get(&salt),
            Some(parent) => Some(&self.node(parent).children),
        };
        let same = |other: &NodeId| {
            let node = self.node(*other);
            *other != leaf && node.computed && node.tokens.starts_with(&self.node(leaf).tokens)
        };
        siblings.is_some_and(|siblings| siblings.iter().any(same))
    }

    /// Whether a kept sequence has a page that no other has.
    fn is_own(&self, kept: &Kept<S>) -> bool {
        kept.path.last().is_some_and(|last| self.node(*last).holders.len() == 1)
    }

    /// Forgets a sequence whose rows cannot be used.
    pub(crate) fn forget(&mut self, sequence: S, path: &[NodeId]) {
        path.iter().rev().for_each(|id| self.release(*id, sequence, true));
    }

    /// A sequence no longer holds a page, which is removed with its last holder.
    fn release(&mut self, id: NodeId, sequence: S, runs: bool) {
        let node = self.node_mut(id);
        node.running -= usize::from(runs);
        node.holders.retain(|holder| *holder != sequence);
        if !node.holders.is_empty() {
            return;
        }
        let (parent, salt) = (node.parent, node.salt);
        match parent {
            Some(parent) => self.node_mut(parent).children.retain(|child| *child != id),
            None => {
                let roots = self.roots.entry(salt).or_default();
                roots.retain(|root| *root != id);
                if roots.is_empty() {
                    self.roots.remove(&salt);
                }
            }
        }
        self.nodes[id.0] = None;
    }

    /// Forgets a kept sequence.
    pub(crate) fn drop_kept(&mut self, sequence: S) -> Eviction<S> {
        if let Some(place) = self.kept.iter().position(|kept| kept.sequence == sequence) {
            let kept = self.kept.remove(place);
            kept.path.iter().rev().for_each(|id| self.release(*id, sequence, false));
        }
        Eviction::RequestEnd(sequence)
    }

    /// The page to be evicted next.
    fn cheapest(&self) -> Option<NodeId> {
        let leaves =
            self.ids().filter(|id| self.node(*id).running == 0 && self.node(*id).children.is_empty());
        leaves.min_by(|a, b| self.node(*a).priority.total_cmp(&self.node(*b).priority))
    }

    /// Evicts a page.
    pub(crate) fn evict_page(&mut self) -> Option<Eviction<S>> {
        let leaf = self.cheapest()?;
        self.age = self.age.max(self.node(leaf).priority);
        Some(self.evict_leaf(leaf))
    }

    fn evict_leaf(&mut self, leaf: NodeId) -> Eviction<S> {
        let (sequence, depth) = (self.node(leaf).holders[0], self.node(leaf).depth);
        let kept = self.kept.iter_mut().find(|kept| kept.sequence == sequence);
        let kept = kept.expect("a leaf without running sequences belongs to a kept one");
        kept.path.pop();
        self.release(leaf, sequence, false);
        let kept = self.kept.iter().find(|kept| kept.sequence == sequence);
        match kept.is_some_and(|kept| self.is_own(kept)) {
            true => Eviction::Truncate(sequence, depth),
            false => self.drop_kept(sequence),
        }
    }

    /// Evicts a whole sequence, to make place for another.
    pub(crate) fn evict_sequence(&mut self) -> Option<Eviction<S>> {
        let last = |kept: &Kept<S>| kept.path.last().map_or(0.0, |last| self.node(*last).priority);
        let cheapest = self.kept.iter().min_by(|a, b| last(a).total_cmp(&last(b)))?.sequence;
        Some(self.drop_kept(cheapest))
    }

    /// The engine could not keep the tokens of a sequence: nothing of it remains.
    pub(crate) fn lost(&mut self, sequence: S) {
        self.drop_kept(sequence);
    }
}

#[cfg(test)]
mod tests;
