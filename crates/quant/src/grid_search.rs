//! Encoding to the types with a codebook: scales are tried, and for each the entries near the values.
//!
//! Rounding every value to its nearest level rarely gives an entry of the codebook. For every combination of levels the
//! entries near it are found once ([`NearEntries`]); of these the one with the least weighted error is taken.

use half::f16;

use crate::fields::all_finite;
use crate::grid::{Grid, GridBlock};
use crate::layout::{BlockLayout, Integers};
use crate::search::{BEYOND, NEGLIGIBLE, nearest, weights};

/// What the upper bits of codes are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upper {
    /// Signs, an even number of them in eight elements.
    EvenSigns,
    /// Signs.
    Signs,
    /// One direction of the shift for this many elements.
    Shift(usize),
}

/// How blocks of a type are encoded.
pub(crate) struct GridSearch {
    pub(crate) grid: &'static Grid,
    pub(crate) upper: Upper,
    /// The largest stored group scale.
    pub(crate) largest: u8,
}

/// Entries near a combination of levels, by far more than any search needs.
const NEAR: usize = 32;

/// For each combination of levels, packed as an entry is, the numbers of the entries near it.
#[derive(Debug)]
pub(crate) struct NearEntries {
    /// Where the list of a combination begins; it ends where the next begins.
    starts: Vec<u32>,
    entries: Vec<u16>,
}

impl NearEntries {
    pub(crate) fn of(grid: &Grid) -> NearEntries {
        let mask = (1u32 << grid.bits) - 1;
        let level = |packed: u16, element: usize| {
            let number = (u32::from(packed) >> (grid.bits * element as u32)) & mask;
            grid.levels.get(number as usize).map(|level| i32::from(*level))
        };
        let entries: Vec<[i32; 8]> = grid
            .entries
            .iter()
            .map(|packed| {
                std::array::from_fn(|at| if at < grid.size { level(*packed, at).unwrap_or(0) } else { 0 })
            })
            .collect();
        let mut near = NearEntries { starts: vec![0], entries: Vec::new() };
        let mut distances: Vec<(i32, u16)> = Vec::new();
        for packed in 0..1u32 << (grid.bits * grid.size as u32) {
            let packed = packed as u16;
            let levels: Option<Vec<i32>> = (0..grid.size).map(|element| level(packed, element)).collect();
            match (levels, grid.entries.binary_search(&packed)) {
                (None, _) => {}
                (Some(_), Ok(index)) => near.entries.push(index as u16),
                (Some(levels), Err(_)) => {
                    distances.clear();
                    distances.extend(entries.iter().zip(0..).map(|(entry, index)| {
                        let squares = levels.iter().zip(entry).map(|(a, b)| (a - b) * (a - b));
                        (squares.sum::<i32>(), index)
                    }));
                    distances.select_nth_unstable(NEAR);
                    near.entries.extend(distances[..NEAR].iter().map(|(_, index)| *index));
                }
            }
            near.starts.push(near.entries.len() as u32);
        }
        near
    }

    fn to(&self, packed: u16) -> &[u16] {
        let packed = usize::from(packed);
        &self.entries[self.starts[packed] as usize..self.starts[packed + 1] as usize]
    }
}

/// The values of a group without their signs, and what their errors count.
struct Group<'a> {
    targets: &'a [f32],
    weights: &'a [f32],
    /// The upper bits of codes, where these are signs.
    signs: &'a [u8],
}

/// A group rounded with some scale: sums of weighted products of values with levels, and of squares of levels.
#[derive(Clone, Copy)]
struct Fit {
    products: f32,
    squares: f32,
    codes: [u8; 32],
}

impl Fit {
    /// The scale that suits the codes best.
    fn scale(&self) -> f32 {
        self.products / self.squares
    }

    /// The squared error that this scale takes away.
    fn gain(&self) -> f32 {
        self.products * self.scale()
    }

    /// The squared error with a scale, less that of all zeros.
    fn cost(&self, scale: f32) -> f32 {
        scale * (scale * self.squares - 2.0 * self.products)
    }
}

impl GridSearch {
    pub(crate) fn encode(
        &self,
        layout: &BlockLayout,
        values: &[f32; 256],
        importance: Option<&[f32; 256]>,
    ) -> GridBlock {
        let mut block = GridBlock::EMPTY;
        let largest = values.iter().fold(0f32, |max, value| max.max(value.abs()));
        if !all_finite(values) || largest > BEYOND {
            let scale = if largest > BEYOND && all_finite(values) { f16::INFINITY } else { f16::NAN };
            return GridBlock { scale: scale.to_bits(), ..block };
        }
        if largest < NEGLIGIBLE {
            return block;
        }
        let Integers::Table(table) = layout.codes else { unreachable!("codebooks have tables of values") };
        let (targets, weights, signs) = self.targets(values, &weights(values, importance));
        let size = layout.group;
        let group = |number: usize| Group {
            targets: &targets[number * size..][..size],
            weights: &weights[number * size..][..size],
            signs: &signs[number * size..][..size],
        };
        let count = 256 / size;
        let mut wanted = [0f32; 16];
        for (number, wanted) in wanted.iter_mut().enumerate().take(count) {
            *wanted = self.best_scale(table, &group(number));
        }
        let most = f32::from(2 * self.largest + 1);
        let unit = wanted.iter().fold(0f32, |max, scale| max.max(*scale)) / most;
        let stored = |unit: f32| f16::from_f32(unit * (1 << layout.scale_shift) as f32);
        let exact = |stored: f16| stored.to_f32() / (1 << layout.scale_shift) as f32;

        let mut best: Option<(f32, GridBlock)> = None;
        let mut take = |unit: f32| {
            let scale = stored(unit);
            let unit = exact(scale);
            if unit <= 0.0 || !unit.is_finite() {
                return None;
            }
            let (mut total, mut found) = (0.0, GridBlock { scale: scale.to_bits(), ..GridBlock::EMPTY });
            let (mut products, mut squares) = (0.0, 0.0);
            for (number, wanted) in wanted.iter().enumerate().take(count) {
                let near = nearest((wanted / unit - 1.0) / 2.0, 0.0, f32::from(self.largest));
                let mut group_best = (f32::INFINITY, 0.0, None);
                for step in [0.0, -1.0, 1.0] {
                    let stored = near + step;
                    if !(0.0..=f32::from(self.largest)).contains(&stored) {
                        continue;
                    }
                    let number_of = 2.0 * stored + 1.0;
                    let fit = self.fit(table, &group(number), unit * number_of);
                    let cost = fit.cost(unit * number_of);
                    if cost < group_best.0 {
                        group_best = (cost, stored, Some(fit));
                    }
                }
                let (cost, stored, Some(fit)) = group_best else { return None };
                let number_of = 2.0 * stored + 1.0;
                total += cost;
                products += fit.products * number_of;
                squares += fit.squares * number_of * number_of;
                found.group_scales[number] = stored as u8;
                found.codes[number * size..][..size].copy_from_slice(&fit.codes[..size]);
            }
            if best.as_ref().is_none_or(|best| total < best.0) {
                best = Some((total, found));
            }
            Some(products / squares)
        };
        for factor in [1.0, 0.94, 0.97, 1.03, 1.06] {
            // Once more with the scale that suits these codes best.
            if let Some(refined) = take(unit * factor) {
                take(refined);
            }
        }
        match best {
            Some((_, found)) => block = found,
            None => block.scale = stored(unit).to_bits(),
        }
        block
    }

    /// Values without their signs where these are stored beside them, their weights, and a sign for each.
    fn targets(&self, values: &[f32; 256], weights: &[f32; 256]) -> ([f32; 256], [f32; 256], [u8; 256]) {
        if let Upper::Shift(_) = self.upper {
            return (*values, *weights, [0; 256]);
        }
        let mut signs = values.map(|value| u8::from(value < 0.0));
        let mut targets = values.map(f32::abs);
        if self.upper == Upper::EvenSigns {
            let eights = signs.as_chunks_mut::<8>().0.iter_mut().zip(targets.as_chunks_mut::<8>().0);
            for ((signs, targets), weights) in eights.zip(weights.as_chunks::<8>().0) {
                if signs.iter().sum::<u8>() % 2 == 1 {
                    // The sign that matters least is turned around, and its value with it.
                    let cost = |at: &usize| weights[*at] * targets[*at] * targets[*at];
                    let least = (0..8).min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(0);
                    signs[least] ^= 1;
                    targets[least] = -targets[least];
                }
            }
        }
        (targets, *weights, signs)
    }

    fn best_scale(&self, table: &[i8; 16], group: &Group<'_>) -> f32 {
        let largest = group.targets.iter().fold(0f32, |max, value| max.max(value.abs()));
        if largest < NEGLIGIBLE {
            return 0.0;
        }
        let top = table.iter().fold(0, |max, value| value.abs().max(max));
        // Ternary levels are best far below the largest value.
        let (from, steps) = if self.grid.levels.len() == 3 { (0.4, 24) } else { (0.6, 20) };
        let mut best = (0.0, 0.0);
        for step in 0..steps {
            let factor = from + (1.2 - from) * step as f32 / (steps - 1) as f32;
            let fit = self.fit(table, group, factor * largest / f32::from(top));
            if fit.products > 0.0 && fit.gain() > best.0 {
                best = (fit.gain(), fit.scale());
            }
        }
        for _ in 0..3 {
            if best.1 <= 0.0 {
                break;
            }
            let fit = self.fit(table, group, best.1);
            if fit.products <= 0.0 || fit.gain() <= best.0 {
                break;
            }
            best = (fit.gain(), fit.scale());
        }
        best.1
    }

    /// The codes with the least error for a scale above 0.
    fn fit(&self, table: &[i8; 16], group: &Group<'_>, scale: f32) -> Fit {
        let mut fit = Fit { products: 0.0, squares: 0.0, codes: [0; 32] };
        let run = if let Upper::Shift(run) = self.upper { run } else { group.targets.len() };
        let shifts = if run == group.targets.len() && !matches!(self.upper, Upper::Shift(_)) { 1 } else { 2 };
        for first in (0..group.targets.len()).step_by(run) {
            let mut best: Option<(f32, Fit)> = None;
            for shift in 0..shifts {
                let mut tried = Fit { products: 0.0, squares: 0.0, codes: [0; 32] };
                self.fit_run(table, group, first..first + run, scale, shift, &mut tried);
                let cost = tried.cost(scale);
                if best.as_ref().is_none_or(|best| cost < best.0) {
                    best = Some((cost, tried));
                }
            }
            if let Some((_, tried)) = best {
                fit.products += tried.products;
                fit.squares += tried.squares;
                fit.codes[first..first + run].copy_from_slice(&tried.codes[first..first + run]);
            }
        }
        fit
    }

    /// The codes of some elements, all shifted in the same direction.
    fn fit_run(
        &self,
        table: &[i8; 16],
        group: &Group<'_>,
        range: std::ops::Range<usize>,
        scale: f32,
        shift: u8,
        fit: &mut Fit,
    ) {
        let Grid { bits, size, levels, entries, .. } = *self.grid;
        let (near, inverse) = (self.grid.near(), 1.0 / scale);
        let upper = usize::from(shift) << bits;
        let mut values = [0f32; 8];
        for (value, level) in values.iter_mut().zip(&table[upper..upper + levels.len()]) {
            *value = f32::from(*level);
        }
        for first in range.step_by(size) {
            let (targets, weights) =
                (&group.targets[first..first + size], &group.weights[first..first + size]);
            let mut packed = 0;
            for (element, target) in targets.iter().enumerate() {
                let (scaled, mut number) = (target * inverse, 0);
                for level in 1..levels.len() {
                    number += u16::from(scaled > (values[level - 1] + values[level]) / 2.0);
                }
                packed |= number << (bits as usize * element);
            }
            let mut best = (f32::INFINITY, 0);
            for index in near.to(packed) {
                let entry = entries[usize::from(*index)];
                let mut error = 0.0;
                for (element, (target, weight)) in targets.iter().zip(weights).enumerate() {
                    let number = usize::from(entry >> (bits as usize * element)) & ((1 << bits) - 1);
                    let difference = target - scale * values[number & 7];
                    error += weight * difference * difference;
                }
                if error < best.0 {
                    best = (error, *index);
                }
            }
            let codes = &mut fit.codes[first..first + size];
            self.grid.put_codes(best.1, if shift == 0 { 0 } else { 255 }, codes);
            let sums = codes.iter_mut().zip(targets).zip(weights).zip(&group.signs[first..]);
            for (((code, target), weight), sign) in sums {
                let level = values[usize::from(*code) & ((1 << bits) - 1)];
                fit.products += weight * target * level;
                fit.squares += weight * level * level;
                *code |= sign << bits;
            }
        }
    }
}
