//! Pictures as SVG.

use std::collections::HashSet;
use std::fmt::Write;

use crate::bytes::{tick_bytes, ticks};
use crate::lanes::{Lane, Lanes, lanes};
use crate::page::escaped;
use crate::palette::{DARK, LIGHT, TINTS};
use crate::picture::{Block, Kind};
use crate::{Error, Picture, RegionKind, short_bytes};

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 78.0;
/// Minimum width and height of blocks that get their own element and name.
const NAMED: (f64, f64) = (9.0, 7.0);

/// A picture as SVG, in the reader's light or dark theme.
///
/// # Errors
/// [`Error::Empty`] for a picture without blocks.
pub fn svg(picture: &Picture) -> Result<String, Error> {
    picture.check()?;
    let drawing = Drawing { picture, lanes: lanes(picture, TOP) };
    let height = drawing.lanes.bottom + 26.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" role=\"img\" font-family=\"system-ui,-apple-system,'Segoe UI',Roboto,sans-serif\">\n\
         <title>{}</title>\n<style>:root,svg{{{LIGHT}}}@media(prefers-color-scheme:dark){{:root,svg{{{DARK}}}}}\
         .g{{fill:var(--ground)}}.l{{fill:var(--lane)}}.t{{fill:var(--ink)}}.s{{fill:var(--soft)}}\
         .m{{stroke:var(--mark);fill:none}}.b{{stroke:var(--bound);fill:none;stroke-dasharray:5 4}}\
         .a{{stroke:var(--line);fill:none}}.c{{fill:var(--soft);opacity:.35}}.mt{{fill:var(--mark)}}.w{{fill:#fff}}.d{{fill:#15181c}}{}</style>\n",
        escaped(&picture.title),
        (0..Kind::ALL.len())
            .fold(String::new(), |css, kind| css + &format!(".k{kind}{{fill:var(--k{kind})}}")),
    );
    let _ = writeln!(out, "<rect class=\"g\" width=\"{WIDTH}\" height=\"{height:.0}\" rx=\"8\"/>");
    drawing.heading(&mut out);
    for head in &drawing.lanes.heads {
        drawing.head(&mut out, head.region, head.top, head.curve);
    }
    for lane in &drawing.lanes.lanes {
        drawing.lane(&mut out, lane);
    }
    drawing.time_axis(&mut out, drawing.lanes.bottom - 8.0);
    out.push_str("</svg>\n");
    Ok(out)
}

struct Drawing<'a> {
    picture: &'a Picture,
    lanes: Lanes,
}

impl Drawing<'_> {
    fn x(&self, step: u64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * step as f64 / self.picture.steps.max(1) as f64
    }

    fn heading(&self, out: &mut String) {
        let picture = self.picture;
        let _ = writeln!(
            out,
            "<text x=\"20\" y=\"32\" class=\"t\" font-size=\"18\" font-weight=\"600\">{}</text>",
            escaped(&picture.title)
        );
        let facts = format!(
            "{} total · {} steps · {} tensors · {}",
            short_bytes(picture.total()),
            picture.steps,
            picture.blocks.len(),
            picture.note
        );
        let _ = writeln!(
            out,
            "<text x=\"20\" y=\"54\" class=\"s\" font-size=\"12.5\">{}</text>",
            escaped(&facts)
        );
        let there: Vec<Kind> = Kind::ALL
            .into_iter()
            .filter(|kind| picture.blocks.iter().any(|block| block.kind == *kind))
            .collect();
        let mut x = WIDTH - RIGHT;
        for kind in there.iter().rev() {
            x -= 22.0 + kind.name().len() as f64 * 6.6;
            let _ = writeln!(
                out,
                "<rect class=\"k{}\" x=\"{x:.0}\" y=\"22\" width=\"11\" height=\"11\" rx=\"2.5\"/>\
                 <text x=\"{:.0}\" y=\"32\" class=\"s\" font-size=\"12\">{}</text>",
                kind.index(),
                x + 15.0,
                kind.name()
            );
            x -= 8.0;
        }
    }

    fn head(&self, out: &mut String, index: usize, top: f64, curve: Option<(f64, f64)>) {
        let region = &self.picture.regions[index];
        let (peak_step, peak) = self.picture.peak(index);
        let mut facts = vec![short_bytes(region.bytes())];
        if let (RegionKind::Arena, Some(bound)) = (region.kind, region.bound) {
            facts.push(format!("bound {}", short_bytes(bound)));
            facts.push(format!("peak at step {peak_step}"));
        }
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{:.1}\" font-size=\"12.5\"><tspan class=\"t\" font-weight=\"600\">{} {}</tspan>\
             <tspan class=\"s\" dx=\"8\">{}</tspan></text>",
            top + 17.0,
            escaped(&region.device),
            region.kind.name(),
            facts.join(" · ")
        );
        let Some((top, height)) = curve else { return };
        let most = peak.max(region.bound.unwrap_or(0)).max(1) as f64;
        let y = |bytes: u64| top + height * (1.0 - bytes as f64 / most);
        let mut path = format!("M{:.1} {:.1}", LEFT, top + height);
        for (step, bytes) in thinned(self.picture.in_use(index), self.picture.steps) {
            let _ = write!(path, "H{:.1}V{:.1}", self.x(step), y(bytes));
        }
        let _ = write!(path, "H{:.1}V{:.1}Z", WIDTH - RIGHT, top + height);
        let _ = writeln!(
            out,
            "<rect class=\"l\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height}\"/>\
             <path class=\"c\" d=\"{path}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" class=\"s\" font-size=\"11\" text-anchor=\"end\">in use</text>",
            WIDTH - RIGHT - LEFT,
            LEFT - 8.0,
            top + height / 2.0 + 4.0
        );
        if let Some(bound) = region.bound {
            let y = y(bound);
            let _ = writeln!(out, "<path class=\"b\" d=\"M{LEFT} {y:.1}H{:.1}\"/>", WIDTH - RIGHT);
        }
        let x = self.peak_x(index);
        let (side, anchor) = if x > WIDTH - 140.0 { (-5.0, "end") } else { (5.0, "start") };
        let _ = writeln!(
            out,
            "<path class=\"m\" d=\"M{x:.1} {top:.1}v{height}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" class=\"mt\" font-size=\"11\" text-anchor=\"{anchor}\">peak {}</text>",
            x + side,
            top + 13.0,
            short_bytes(peak)
        );
    }

    /// The middle of a region's peak step.
    fn peak_x(&self, region: usize) -> f64 {
        let (step, _) = self.picture.peak(region);
        (self.x(step) + self.x(step + 1)) / 2.0
    }

    fn lane(&self, out: &mut String, lane: &Lane) {
        let width = WIDTH - RIGHT - LEFT;
        let Lane { top, height, region, chunk, .. } = *lane;
        let _ = writeln!(
            out,
            "<rect class=\"l\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        );
        self.blocks(out, lane);
        for bytes in ticks(lane.bytes, (height / 28.0).max(1.0) as u64, true) {
            let y = lane.y(bytes);
            let _ = writeln!(
                out,
                "<path class=\"a\" d=\"M{:.1} {y:.1}h5\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" class=\"s\" font-size=\"11\" text-anchor=\"end\">{}</text>",
                LEFT - 5.0,
                LEFT - 8.0,
                y + 4.0,
                tick_bytes(bytes)
            );
        }
        let region = &self.picture.regions[region];
        if region.chunks.len() > 1 {
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" class=\"s\" font-size=\"11\">chunk {chunk}</text>",
                LEFT + 6.0,
                top + 13.0
            );
        } else if let Some(bound) = region.bound.filter(|bound| *bound <= lane.bytes) {
            let y = lane.y(bound);
            let _ = writeln!(out, "<path class=\"b\" d=\"M{LEFT} {y:.1}H{:.1}\"/>", WIDTH - RIGHT);
        }
        if region.kind == RegionKind::Arena {
            let x = self.peak_x(lane.region);
            let _ = writeln!(out, "<path class=\"m\" d=\"M{x:.1} {top:.1}v{height:.1}\"/>");
        }
    }

    /// Large blocks as elements, small ones as one path per colour, and only one per pixel.
    fn blocks(&self, out: &mut String, lane: &Lane) {
        let mut paths = vec![String::new(); Kind::ALL.len() * TINTS.len()];
        let mut seen: HashSet<(i32, i32)> = HashSet::new();
        let mine = |block: &&Block| block.region == lane.region && block.chunk == lane.chunk;
        for (index, block) in self.picture.blocks.iter().enumerate().filter(|(_, block)| mine(block)) {
            let (x, right) = (self.x(block.live.start), self.x(block.live.end));
            let (y, bottom) = (lane.y(block.offset.saturating_add(block.bytes)), lane.y(block.offset));
            let (w, h) = (right - x, bottom - y);
            let tint = index % TINTS.len();
            if w >= NAMED.0 && h >= NAMED.1 {
                let live = &block.live;
                let _ = writeln!(
                    out,
                    "<rect class=\"k{}\" opacity=\"{}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\">\
                     <title>{}: {}, steps {} to {}</title></rect>",
                    block.kind.index(),
                    TINTS[tint],
                    w - 0.6,
                    h - 0.6,
                    escaped(&block.name),
                    short_bytes(block.bytes),
                    live.start,
                    live.end.saturating_sub(1)
                );
                label(out, block, (x, y), (w, h));
                continue;
            }
            if (w < 0.5 || h < 0.5) && !seen.insert(((x * 2.0) as i32, (y * 2.0) as i32)) {
                continue;
            }
            let gap = |size: f64| if size > 2.0 { size - 0.4 } else { size.max(0.4) };
            let (w, h) = (gap(w), gap(h));
            let path = &mut paths[block.kind.index() * TINTS.len() + tint];
            let _ = write!(path, "M{x:.1} {y:.1}h{w:.1}v{h:.1}h-{w:.1}z");
        }
        for (index, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            let (kind, tint) = (index / TINTS.len(), TINTS[index % TINTS.len()]);
            let _ = writeln!(out, "<path class=\"k{kind}\" opacity=\"{tint}\" d=\"{path}\"/>");
        }
    }

    fn time_axis(&self, out: &mut String, y: f64) {
        for step in ticks(self.picture.steps, 12, false) {
            let x = self.x(step);
            let _ = writeln!(
                out,
                "<path class=\"a\" d=\"M{x:.1} {y:.1}v5\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" class=\"s\" font-size=\"11\" text-anchor=\"middle\">{step}</text>",
                y + 18.0
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" class=\"s\" font-size=\"11\" text-anchor=\"end\">step</text>",
            LEFT - 8.0,
            y + 18.0
        );
    }
}

/// The name of a block, truncated to its width.
fn label(out: &mut String, block: &Block, (x, y): (f64, f64), (w, h): (f64, f64)) {
    let room = ((w - 10.0) / 6.4).max(0.0) as usize;
    if h < 14.0 || room < 5 {
        return;
    }
    let short: String = match block.name.chars().count() <= room {
        true => block.name.clone(),
        false => block.name.chars().take(room - 1).chain(['…']).collect(),
    };
    let class = match block.kind {
        Kind::Weight | Kind::Scratch | Kind::Copy => "w",
        Kind::Cache | Kind::Input | Kind::Activation => "d",
    };
    let _ = writeln!(
        out,
        "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\">{}</text>",
        x + 5.0,
        y + h / 2.0 + 4.0,
        escaped(&short)
    );
}

/// Reduces a curve to the highest and the last value of each of two thousand columns.
fn thinned(curve: Vec<(u64, u64)>, steps: u64) -> Vec<(u64, u64)> {
    const COLUMNS: u128 = 2000;
    if u128::from(steps) <= COLUMNS {
        return curve;
    }
    let column = |(step, _): &(u64, u64)| u128::from(*step) * COLUMNS / u128::from(steps);
    let mut kept = Vec::new();
    for events in curve.chunk_by(|a, b| column(a) == column(b)) {
        let (Some((first, _)), Some(last)) = (events.first(), events.last()) else { continue };
        let highest = events.iter().fold(0, |highest, (_, bytes)| (*bytes).max(highest));
        kept.push((*first, highest));
        kept.extend(Some(*last).filter(|(_, bytes)| *bytes < highest));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_within_a_column_is_no_plateau() {
        // 100 bytes for all of a million steps, a million more at the first hundred, and a peak later on.
        let curve =
            vec![(0, 1_000_100), (100, 100), (500_000, 900), (500_001, 700), (500_002, 800), (1_000_000, 0)];
        let expected = [(0, 1_000_100), (100, 100), (500_000, 900), (500_002, 800), (1_000_000, 0)];
        assert_eq!(thinned(curve.clone(), 1_000_000), expected);
        assert_eq!(thinned(curve.clone(), 2000), curve);
    }
}
