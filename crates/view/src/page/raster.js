// Blocks as pixels. Blocks of a lane never overlap, so all of them together cost no more than the pixels of the plot and
// a little for each; a canvas that is asked for fifty thousand rectangles costs much more.

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
  let seen = 0;
  eachIn(plan, lane, pane.x0, pane.x1, (bottom - last) / scaleY, (bottom - first) / scaleY, (id) => {
    const x = (start[id] - pane.x0) * scaleX, right = (end[id] - pane.x0) * scaleX;
    const low = bottom - offset[id] * scaleY, y = low - bytes[id] * scaleY;
    const faint = (matches && !matches.has(id)) || (only >= 0 && kind[id] !== only);
    const colour = (faint ? dim : fill)[kind[id] * tints + (id % tints)];
    const w = right - x, h = low - y;
    seen++;
    let x0 = Math.max(0, Math.round(x)), x1 = Math.min(width, Math.round(right));
    let y0 = Math.max(first, Math.round(y)), y1 = Math.min(last, Math.round(low));
    // Neighbours stand a line apart where there is room for one.
    if (w > 4) x1 -= right < width ? 1 : 0;
    if (h > 4) y1 -= low < last ? 1 : 0;
    if (w >= 1 && h >= 1 && x1 > x0 && y1 > y0) {
      for (let row = y0 * width; row < y1 * width; row += width) {
        if (x1 - x0 > 12) pixels.fill(colour, row + x0, row + x1);
        else for (let at = row + x0; at < row + x1; at++) pixels[at] = colour;
      }
      if (w > nameWidth && h > nameHeight && !faint) labels.push(id, LEFT + x / ratio, y / ratio, w / ratio, h / ratio);
      return;
    }
    // What is thinner than a pixel covers a part of it.
    x0 = Math.max(0, Math.min(width - 1, Math.floor(x)));
    y0 = Math.max(first, Math.min(last - 1, Math.floor(y)));
    x1 = Math.max(x0 + 1, x1);
    y1 = Math.max(y0 + 1, y1);
    const part = Math.max(matches && !faint ? 255 : 56, Math.round(256 * Math.min(1, w) * Math.min(1, h)));
    for (let row = y0 * width; row < y1 * width; row += width) {
      for (let at = row + x0; at < row + x1; at++) pixels[at] = blend(pixels[at], colour, part);
    }
  });
  return seen;
}

/** Two colours, the second with `part` of 256. */
function blend(a, b, part) {
  const rest = 256 - part;
  const red = (((a & 255) * rest + (b & 255) * part) >> 8) & 255;
  const green = ((((a >> 8) & 255) * rest + ((b >> 8) & 255) * part) >> 8) & 255;
  const blue = ((((a >> 16) & 255) * rest + ((b >> 16) & 255) * part) >> 8) & 255;
  return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
}
