//! Steps that threads can run at the same time, as none of them touches what another writes.

use std::ops::Range;

/// Most steps of a group: a run can be cancelled between groups.
pub(crate) const MAX_GROUP: usize = 16;

/// Memory that a step touches.
#[derive(Clone, Debug)]
pub(crate) struct Touched {
    /// Addresses, whole buffers apart.
    pub(crate) place: Range<u64>,
    pub(crate) writes: bool,
    /// The temporary that it is, if every thread has a part of its own there.
    pub(crate) scratch: Option<usize>,
}

impl Touched {
    fn conflicts(&self, other: &Touched) -> bool {
        let own_parts = self.scratch.is_some() && self.scratch == other.scratch;
        (self.writes || other.writes) && !own_parts && overlap(&self.place, &other.place)
    }
}

pub(crate) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end && !a.is_empty() && !b.is_empty()
}

/// Cuts steps, each given by what it touches, into groups.
pub(crate) fn groups<T: AsRef<[Touched]>>(steps: &[T]) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let joins = |group: &&mut Range<usize>| {
            let mut before = steps[(*group).clone()].iter().flat_map(AsRef::as_ref);
            group.len() < MAX_GROUP
                && !before.any(|other| step.as_ref().iter().any(|touched| touched.conflicts(other)))
        };
        match groups.last_mut().filter(joins) {
            Some(group) => group.end = index + 1,
            None => groups.push(index..index + 1),
        }
    }
    groups
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // one group
mod tests {
    use super::*;

    fn touched(place: Range<u64>, writes: bool) -> Touched {
        Touched { place, writes, scratch: None }
    }

    #[test]
    fn steps_that_only_read_the_same_belong_together() {
        let step = |to: u64| vec![touched(0..64, false), touched(to..to + 64, true)];
        assert_eq!(groups(&[step(64), step(128), step(192)]), [0..3]);
    }

    #[test]
    fn reading_or_writing_what_another_writes_begins_a_group_and_so_does_writing_what_another_reads() {
        let step = |from: u64, to: u64| vec![touched(from..from + 64, false), touched(to..to + 64, true)];
        assert_eq!(groups(&[step(0, 64), step(64, 128)]), [0..1, 1..2]);
        assert_eq!(groups(&[step(0, 64), step(192, 100)]), [0..1, 1..2]);
        assert_eq!(groups(&[step(0, 64), step(192, 0)]), [0..1, 1..2]);
        assert_eq!(groups(&[step(0, 64), step(0, 128), step(64, 192), step(128, 256)]), [0..2, 2..4]);
    }

    #[test]
    fn scratch_is_shared_only_where_it_is_one_temporary() {
        let step = |temporary: usize, to: u64| {
            vec![
                Touched { place: 0..256, writes: true, scratch: Some(temporary) },
                touched(to..to + 64, true),
            ]
        };
        assert_eq!(groups(&[step(0, 256), step(0, 512)]), [0..2]);
        assert_eq!(groups(&[step(0, 256), step(1, 512)]), [0..1, 1..2]);
    }

    #[test]
    fn groups_do_not_grow_without_end() {
        let steps: Vec<Vec<Touched>> =
            (0..40).map(|step| vec![touched(step * 8..step * 8 + 8, true)]).collect();
        assert_eq!(groups(&steps), [0..16, 16..32, 32..40]);
    }
}
