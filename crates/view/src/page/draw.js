// Draws one pane in one pass, at pixel resolution.

const TINTS = [1, 0.84, 0.7];
const FONT = '12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif';
const SMALL = '11px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif';
let colours = null;

/** The palette of the page's style as the canvas needs it: as pixels, mixed with the ground as neighbours take turns. */
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue("--" + name).trim();
  const parse = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const pixel = ([red, green, blue]) => (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
  const mix = (a, b, part) => pixel(a.map((v, i) => Math.round(v * part + b[i] * (1 - part))));
  const lane = parse(get("lane"));
  colours = { fill: [], dim: [], text: [] };
  for (const name of ["ground", "panel", "ink", "soft", "line", "lane", "accent", "mark", "bound"]) colours[name] = get(name);
  colours.groundPixel = pixel(parse(colours.ground));
  colours.lanePixel = pixel(lane);
  KINDS.forEach((_, kind) => {
    const own = parse(get("k" + kind));
    TINTS.forEach((tint) => { colours.fill.push(mix(own, lane, tint)); colours.dim.push(mix(own, lane, tint * 0.22)); });
    const light = own[0] * 0.299 + own[1] * 0.587 + own[2] * 0.114 > 140;
    colours.text.push(light ? "#15181c" : "#ffffff");
  });
}

function drawPane(pane, state, side) {
  const { context: c, plan, canvas } = pane;
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(pane.width * ratio), height = Math.round(pane.height * ratio);
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.fillStyle = colours.ground;
  c.fillRect(0, 0, pane.width, pane.height);
  c.save();
  c.beginPath();
  c.rect(LEFT, 0, plotWidth(pane), plotHeight(pane));
  c.clip();
  const { seen, labels } = drawBlocks(pane, state, side, ratio);
  pane.world.heads.forEach((head) => drawCurve(pane, head));
  drawLabels(pane, labels);
  drawMarks(pane, state, side);
  c.restore();
  drawAxes(pane);
  return seen;
}

/** Names, where they fit. */
function drawLabels(pane, labels) {
  const { context: c, plan } = pane;
  c.font = SMALL;
  c.textBaseline = "middle";
  c.textAlign = "left";
  for (let i = 0; i < labels.length; i += 5) {
    const [id, x, y, w, h] = labels.slice(i, i + 5);
    const from = Math.max(x, LEFT) + 5, room = Math.min(x + w, LEFT + plotWidth(pane)) - from - 4;
    const most = Math.floor(room / 6.1);
    if (most < 5) continue;
    const name = plan.name[id];
    c.fillStyle = colours.text[plan.kind[id]];
    const middle = (Math.max(y, 0) + Math.min(y + h, plotHeight(pane))) / 2;
    c.fillText(name.length <= most ? name : name.slice(0, most - 1) + "…", from, middle);
    if (h > 34 && w > 90) {
      c.globalAlpha = 0.75;
      c.fillText(shortBytes(plan.bytes[id]), from, middle + 14);
      c.globalAlpha = 1;
    }
  }
}

/** Bytes in use over time, with the bound. */
function drawCurve(pane, head) {
  if (head.curve === null) return;
  const { context: c } = pane, { region } = head;
  const top = toY(pane, head.curve), bottom = toY(pane, head.curve + CURVE);
  if (bottom < 0 || top > plotHeight(pane)) return;
  const most = Math.max(region.peak, region.bound || 0, 1);
  const { at, bytes } = region.curve;
  c.fillStyle = colours.lane;
  c.fillRect(LEFT, top, plotWidth(pane), bottom - top);
  c.beginPath();
  c.moveTo(LEFT - 1, bottom);
  let column = -1, high = bottom, last = bottom;
  for (let i = 0; i < at.length; i++) {
    if (i + 1 < at.length && at[i + 1] < pane.x0) continue;
    if (at[i] > pane.x1) break;
    const x = Math.max(LEFT - 1, toX(pane, at[i])), y = bottom - (bottom - top) * (bytes[i] / most);
    if ((x | 0) === column) { high = Math.min(high, y); last = y; continue; }
    if (column >= 0) { c.lineTo(column, high); c.lineTo(x, last); }
    column = x | 0; high = last = y;
  }
  c.lineTo(column, high);
  c.lineTo(LEFT + plotWidth(pane) + 1, last);
  c.lineTo(LEFT + plotWidth(pane) + 1, bottom);
  c.globalAlpha = 0.38;
  c.fillStyle = colours.soft;
  c.fill();
  c.globalAlpha = 1;
  if (region.bound) dashed(c, colours.bound, LEFT, LEFT + plotWidth(pane), bottom - (bottom - top) * (region.bound / most));
}

function dashed(c, colour, x, right, y) {
  c.strokeStyle = colour;
  c.lineWidth = 1;
  c.setLineDash([5, 4]);
  c.beginPath();
  c.moveTo(x, Math.round(y) + 0.5);
  c.lineTo(right, Math.round(y) + 0.5);
  c.stroke();
  c.setLineDash([]);
}

/** What stands out: the bound, the peak, the step that was clicked, blocks that are pointed at. */
function drawMarks(pane, state, side) {
  const { context: c, plan } = pane;
  for (const placed of pane.world.lanes) {
    const { region } = placed;
    if (region.arena && region.bound && region.chunks.length === 1 && region.bound <= placed.lane.bytes) {
      dashed(c, colours.bound, LEFT, LEFT + plotWidth(pane), laneY(pane, placed, region.bound));
    }
  }
  for (const head of pane.world.heads.filter((head) => head.region.arena)) {
    const mine = pane.world.lanes.filter(({ lane }) => lane.region === head.index);
    const x = Math.round(toX(pane, head.region.peak_step + 0.5)) + 0.5;
    const from = toY(pane, head.curve), last = mine[mine.length - 1];
    line(c, colours.mark, x, from, toY(pane, last.top + last.height), 1.25);
    const text = "peak " + shortBytes(head.region.peak);
    const flip = x > pane.width - 130;
    c.font = SMALL;
    c.textAlign = flip ? "right" : "left";
    c.textBaseline = "top";
    const wide = c.measureText(text).width;
    c.globalAlpha = 0.85;
    c.fillStyle = colours.lane;
    c.fillRect(flip ? x - wide - 9 : x + 2, from + 1, wide + 7, 15);
    c.globalAlpha = 1;
    c.fillStyle = colours.mark;
    c.fillText(text, x + (flip ? -5 : 5), from + 3);
  }
  if (state.step[side] >= 0) {
    const x = toX(pane, state.step[side]), w = Math.max(1.5, toX(pane, state.step[side] + 1) - x);
    c.globalAlpha = 0.16;
    c.fillStyle = colours.accent;
    c.fillRect(x, 0, w, plotHeight(pane));
    c.globalAlpha = 1;
    line(c, colours.accent, Math.round(x + w / 2) + 0.5, 0, plotHeight(pane), 1);
  }
  const outline = (id, colour, width) => {
    const { x, y, w, h } = boxOf(pane, id);
    c.strokeStyle = colour;
    c.lineWidth = width;
    c.strokeRect(x - 0.5, y - 0.5, Math.max(w, 2), Math.max(h, 2));
  };
  if (state.matches[side]) {
    let left = 400;
    for (const id of state.matches[side]) {
      if (!left--) break;
      outline(id, colours.ink, 1);
    }
  }
  if (state.twin[side] >= 0) outline(state.twin[side], colours.accent, 1.5);
  if (state.selected[side] >= 0) outline(state.selected[side], colours.accent, 2.5);
  if (state.hover[side] >= 0) outline(state.hover[side], colours.ink, 1.5);
}

function line(c, colour, x, from, to, width) {
  c.strokeStyle = colour;
  c.lineWidth = width;
  c.beginPath();
  c.moveTo(x, from);
  c.lineTo(x, to);
  c.stroke();
}

/** Headings and bytes beside the lanes, steps below them. */
function drawAxes(pane) {
  const { context: c, plan } = pane;
  c.save();
  c.beginPath();
  c.rect(0, 0, pane.width, plotHeight(pane));
  c.clip();
  c.textBaseline = "alphabetic";
  for (const head of pane.world.heads) {
    const base = toY(pane, head.top + HEADING - 8), { region } = head;
    c.textAlign = "left";
    c.font = "600 " + FONT;
    c.fillStyle = colours.ink;
    const name = region.device + " " + region.what;
    c.fillText(name, LEFT, base);
    const after = LEFT + c.measureText(name).width + 10;
    c.font = FONT;
    c.fillStyle = colours.soft;
    const facts = [shortBytes(region.bytes)];
    if (region.arena && region.bound !== null) facts.push("bound " + shortBytes(region.bound));
    if (region.arena) facts.push("peak at step " + number(region.peak_step));
    c.fillText(facts.join("  ·  "), after, base);
    if (head.curve !== null) {
      c.font = SMALL;
      c.textAlign = "right";
      c.fillText("in use", LEFT - 8, toY(pane, head.curve + CURVE / 2) + 4);
    }
  }
  c.font = SMALL;
  for (const placed of pane.world.lanes) bytesAxis(pane, placed);
  c.restore();
  const y = plotHeight(pane);
  c.strokeStyle = colours.line;
  c.beginPath();
  c.moveTo(LEFT, y + 0.5);
  c.lineTo(LEFT + plotWidth(pane), y + 0.5);
  c.stroke();
  c.fillStyle = colours.soft;
  c.textBaseline = "top";
  c.textAlign = "right";
  c.fillText("step", LEFT - 12, y + 9);
  c.textAlign = "center";
  const every = roundStep((pane.x1 - pane.x0) / Math.max(2, plotWidth(pane) / 90));
  for (let step = Math.ceil(pane.x0 / every) * every; step <= pane.x1; step += every) {
    const x = Math.round(toX(pane, step)) + 0.5;
    line(c, colours.line, x, y, y + 5, 1);
    c.fillText(number(step), x, y + 9);
  }
}

function roundStep(least) {
  if (least <= 1) return 1;
  const ten = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((m) => m * ten).find((step) => step >= least);
}

function bytesAxis(pane, placed) {
  const { context: c } = pane;
  const top = Math.max(0, toY(pane, placed.top)), bottom = Math.min(plotHeight(pane), toY(pane, placed.top + placed.height));
  if (bottom - top < 4) return;
  const low = Math.max(0, bytesAt(pane, placed, bottom)), high = Math.min(placed.lane.bytes, bytesAt(pane, placed, top));
  const every = 2 ** Math.max(0, Math.ceil(Math.log2((high - low) / Math.max(1.5, (bottom - top) / 26))));
  c.textAlign = "right";
  c.textBaseline = "middle";
  for (let bytes = Math.ceil(low / every) * every; bytes <= high; bytes += every) {
    const y = laneY(pane, placed, bytes);
    line(c, colours.line, LEFT - 2, y, y + 1, 4);
    c.fillStyle = colours.soft;
    c.fillText(tickBytes(bytes, every), LEFT - 8, y);
  }
  if (placed.region.chunks.length > 1) {
    c.textAlign = "left";
    c.fillStyle = colours.ink;
    c.fillText("chunk " + placed.lane.chunk, LEFT + 5, top + 9);
  }
}
