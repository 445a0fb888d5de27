//! Large elements.

use super::{Floats, Lanes, VectorLoop};

/// The largest element; minus infinity if there is none, or NaN alone.
pub(crate) struct LargestOf<'a>(pub(crate) Floats<'a>);

impl VectorLoop for LargestOf<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f32 {
        LargestAbove(self.0, f32::NEG_INFINITY).run::<L>()
    }
}

/// The largest of elements and a limit, which it mostly is. NaN among the elements counts for nothing, and as the limit
/// stays.
pub(crate) struct LargestAbove<'a>(pub(crate) Floats<'a>, pub(crate) f32);

impl VectorLoop for LargestAbove<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f32 {
        let LargestAbove(x, limit) = self;
        let lowest = L::splat(limit);
        let whole = x.len() / (4 * L::COUNT) * (4 * L::COUNT);
        let mut max = [lowest; 4];
        for at in (0..whole).step_by(4 * L::COUNT) {
            for (part, max) in max.iter_mut().enumerate() {
                // Where an element is NaN, what was there stays.
                *max = max.at_least(x.load(at + part * L::COUNT));
            }
        }
        let (rest, whole) = (whole, x.len() / L::COUNT * L::COUNT);
        for at in (rest..whole).step_by(L::COUNT) {
            max[0] = max[0].at_least(x.load(at));
        }
        let max = max[0].at_least(max[1]).at_least(max[2].at_least(max[3]));
        let mut largest = if max.is_above(lowest) { max.largest() } else { limit };
        for at in whole..x.len() {
            let element = x.get(at);
            largest = if element > largest { element } else { largest };
        }
        largest
    }
}
