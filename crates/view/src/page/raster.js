// Rasterizes blocks. Blocks of a lane never overlap, so the cost is about one write per pixel, much less than fifty
// thousand canvas rectangles.

/** The pixels of a pane's plot, kept from frame to frame while the size is the same. */
function rasterOf(pane, ratio) {
  const width = Math.max(1, Math.round(plotWidth(pane) * ratio)), height = Math.max(1, Math.round(plotHeight(pane) * ratio));
  if (!pane.raster || pane.raster.width !== width || pane.raster.height !== height) {
    const image = pane.context.createImageData(width, height);
    pane.raster = { image, pixels: new Uint32Array(image.data.buffer), width, height };
  }
  return pane.raster;
}

/** Draws all lanes; gives how many blocks were seen, and which of them have room for a name. */
function drawBlocks(pane, state, side, ratio) {
  const raster = rasterOf(pane, ratio), labels = [];
  raster.pixels.fill(colours.groundPixel);
  let seen = 0;
  for (const placed of pane.world.lanes) seen += rasterLane(pane, placed, state, side, ratio, raster, labels);
  pane.context.putImageData(raster.image, Math.round(LEFT * ratio), 0);
  return { seen, labels };
}

function rasterLane(pane, placed, state, side, ratio, raster, labels) {
  const { plan } = pane, { lane } = placed, { pixels, width, height } = raster;
  const top = toY(pane, placed.top) * ratio, bottom = toY(pane, placed.top + placed.height) * ratio;
  const first = Math.max(0, Math.round(top)), last = Math.min(height, Math.round(bottom));
  if (last <= first) return 0;
  pixels.fill(colours.lanePixel, first * width, last * width);
  const scaleX = width / (pane.x1 - pane.x0), scaleY = (bottom - top) / lane.bytes;
  const { start, end, offset, bytes, kind } = plan, { fill, dim } = colours;
  const matches = state.matches[side], only = state.kind, tints = TINTS.length;
  const nameWidth = 54 * ratio, nameHeight = 13 * ratio;
  const { ids, until } = lane, { x0: from, x1: to } = pane;
  const lowest = (bottom - last) / scaleY, highest = (bottom - first) / scaleY;
  const faintAll = matches || only >= 0;
  let seen = 0;
  // `eachIn`, inlined: the hot loop of a frame.
  for (let g = 0; g < until.length && start[ids[g * GROUP]] < to; g++) {
    if (until[g] <= from || lane.low[g] >= highest || lane.high[g] <= lowest) continue;
    for (let at = g * GROUP, stop = Math.min(at + GROUP, ids.length); at < stop; at++) {
      const id = ids[at], begin = start[id], until = end[id], under = offset[id], over = under + bytes[id];
      if (begin >= to) break;
      if (until <= from || under >= highest || over <= lowest) continue;
      const x = (begin - from) * scaleX, right = (until - from) * scaleX;
      const low = bottom - under * scaleY, y = bottom - over * scaleY, w = right - x, h = low - y;
      const faint = faintAll && ((matches && !matches.has(id)) || (only >= 0 && kind[id] !== only));
      const colour = (faint ? dim : fill)[kind[id] * tints + (id % tints)];
      seen++;
      // A gap of one line between neighbours, if there is room.
      let x0 = Math.max(0, x + 0.5) | 0, x1 = (Math.min(width, right + 0.5) | 0) - (w > 4 && right < width ? 1 : 0);
      let y0 = Math.max(first, y + 0.5) | 0, y1 = (Math.min(last, low + 0.5) | 0) - (h > 4 && low < last ? 1 : 0);
      if (w >= 1 && h >= 1 && x1 > x0 && y1 > y0) {
        for (let row = y0 * width; row < y1 * width; row += width) {
          if (x1 - x0 > 12) pixels.fill(colour, row + x0, row + x1);
          else for (let at = row + x0; at < row + x1; at++) pixels[at] = colour;
        }
        if (w > nameWidth && h > nameHeight && !faint) labels.push(id, LEFT + x / ratio, y / ratio, w / ratio, h / ratio);
        continue;
      }
      // Thinner than a pixel: partial coverage.
      x0 = Math.max(0, Math.min(width - 1, x)) | 0;
      y0 = Math.max(first, Math.min(last - 1, y)) | 0;
      x1 = Math.max(x0 + 1, x1);
      y1 = Math.max(y0 + 1, y1);
      const part = faintAll && !faint ? 255 : Math.max(56, (256 * Math.min(1, w) * Math.min(1, h)) | 0);
      for (let row = y0 * width; row < y1 * width; row += width) {
        for (let at = row + x0; at < row + x1; at++) pixels[at] = blend(pixels[at], colour, part);
      }
    }
  }
  return seen;
}

/** Blends two colours, the second with `part` of 256; red and blue are computed together. */
function blend(a, b, part) {
  const rest = 256 - part;
  const odd = (((a & 0xff00ff) * rest + (b & 0xff00ff) * part) >>> 8) & 0xff00ff;
  const green = (((a & 0xff00) * rest + (b & 0xff00) * part) >>> 8) & 0xff00;
  return (0xff000000 | odd | green) >>> 0;
}
