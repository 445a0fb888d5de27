//! Pictures as text maps.

use std::fmt::Write;

use crate::bytes::tick_bytes;
use crate::picture::{Block, Kind};
use crate::{Error, Picture, RegionKind, short_bytes};

/// The style of a block map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapStyle {
    /// Characters per line, including the addresses.
    pub width: usize,
    /// Lines of the largest chunk.
    pub height: usize,
    /// Whether to use colours.
    pub colour: bool,
}

/// The letters of each kind: upper case where most of the cell is in use.
const LETTERS: [(char, char); 6] = [('W', 'w'), ('K', 'k'), ('I', 'i'), ('A', 'a'), ('S', 's'), ('C', 'c')];
/// The terminal colour of each kind, out of 256.
const COLOURS: [u8; 6] = [67, 73, 246, 179, 167, 140];
const MARGIN: usize = 12;

/// A picture as text: lines are addresses, columns are steps, the lowest address is at the bottom.
///
/// # Errors
/// [`Error::Empty`] for a picture without blocks.
pub fn block_map(picture: &Picture, style: MapStyle) -> Result<String, Error> {
    picture.check()?;
    let mut out = String::new();
    let largest = picture.regions.iter().flat_map(|region| &region.chunks).copied().max().unwrap_or(1).max(1);
    for (index, region) in picture.regions.iter().enumerate() {
        for (chunk, bytes) in region.chunks.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
            let which = if region.chunks.len() > 1 { format!(", chunk {chunk}") } else { String::new() };
            let (step, _) = picture.peak(index);
            let peak = match region.kind {
                RegionKind::Arena => format!(", peak at step {step}"),
                _ => String::new(),
            };
            let (device, what) = (&region.device, region.kind.name());
            let _ = writeln!(out, "{device} {what}{which}: {}{peak}", short_bytes(*bytes));
            let lines = match region.kind {
                RegionKind::Arena => style.height,
                _ => (style.height as f64 * (*bytes as f64 / largest as f64)).ceil().clamp(1.0, 4.0) as usize,
            };
            let grid = Grid::fill(picture, (index, chunk, *bytes), columns(picture, style), lines.max(1));
            grid.print(&mut out, *bytes, style.colour);
            if region.kind == RegionKind::Arena {
                let column = grid.column(step, picture.steps);
                let _ = writeln!(out, "{:MARGIN$}{:column$}^ step {step}", "", "");
            }
        }
    }
    legend(&mut out, picture, style.colour);
    Ok(out)
}

fn columns(picture: &Picture, style: MapStyle) -> usize {
    let room = style.width.saturating_sub(MARGIN + 1).max(8);
    usize::try_from(picture.steps).unwrap_or(usize::MAX).clamp(1, room)
}

/// The share of each cell that each kind occupies.
struct Grid {
    columns: usize,
    lines: usize,
    cells: Vec<[f32; 6]>,
}

impl Grid {
    fn fill(
        picture: &Picture,
        (region, chunk, bytes): (usize, usize, u64),
        columns: usize,
        lines: usize,
    ) -> Grid {
        let mut grid = Grid { columns, lines, cells: vec![[0.0; 6]; columns * lines] };
        let mine = |block: &&Block| block.region == region && block.chunk == chunk;
        for block in picture.blocks.iter().filter(mine) {
            let scale = |value: u64, all: u64, cells: usize| value as f64 * cells as f64 / all.max(1) as f64;
            let x = [block.live.start, block.live.end].map(|step| scale(step, picture.steps, columns));
            let y =
                [block.offset, block.offset.saturating_add(block.bytes)].map(|at| scale(at, bytes, lines));
            for line in y[0] as usize..(y[1].ceil() as usize).min(lines) {
                for column in x[0] as usize..(x[1].ceil() as usize).min(columns) {
                    let part = |range: [f64; 2], at: usize| {
                        (range[1].min(at as f64 + 1.0) - range[0].max(at as f64)).max(0.0)
                    };
                    let cell = &mut grid.cells[line * columns + column];
                    cell[block.kind.index()] += (part(x, column) * part(y, line)) as f32;
                }
            }
        }
        grid
    }

    fn column(&self, step: u64, steps: u64) -> usize {
        let column = (step as f64 + 0.5) * self.columns as f64 / steps.max(1) as f64;
        (column as usize).min(self.columns - 1)
    }

    fn print(&self, out: &mut String, bytes: u64, colour: bool) {
        for line in (0..self.lines).rev() {
            let address = (u128::from(bytes) * line as u128 / self.lines as u128) as u64;
            let _ = write!(out, "{:>width$} ", tick_bytes(address), width = MARGIN - 1);
            let mut current = None;
            for cell in &self.cells[line * self.columns..(line + 1) * self.columns] {
                let (kind, most) = cell
                    .iter()
                    .enumerate()
                    .fold((0, 0.0), |best, (kind, part)| if *part > best.1 { (kind, *part) } else { best });
                let used: f32 = cell.iter().sum();
                let wanted = (colour && most > 0.0).then_some(COLOURS[kind]);
                if wanted != current {
                    let _ = match wanted {
                        Some(code) => write!(out, "\u{1b}[38;5;{code}m"),
                        None => write!(out, "\u{1b}[0m"),
                    };
                    current = wanted;
                }
                out.push(match (most > 0.0, colour) {
                    (false, _) => '·',
                    (true, true) => ['░', '▒', '▓', '█'][((used * 4.0) as usize).min(3)],
                    (true, false) if used >= 0.5 => LETTERS[kind].0,
                    (true, false) => LETTERS[kind].1,
                });
            }
            out.push_str(if current.is_some() { "\u{1b}[0m\n" } else { "\n" });
        }
    }
}

fn legend(out: &mut String, picture: &Picture, colour: bool) {
    let mut words = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| picture.blocks.iter().any(|block| block.kind == *kind)) {
        words.push(match colour {
            true => format!("\u{1b}[38;5;{}m█\u{1b}[0m {}", COLOURS[kind.index()], kind.name()),
            false => format!("{} {}", LETTERS[kind.index()].0, kind.name()),
        });
    }
    let _ = writeln!(out, "{:MARGIN$}{}   · free", "", words.join("   "));
}
