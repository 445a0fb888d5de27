// Layout of a pane: lanes in world coordinates, and the visible part.

const LEFT = 84, RIGHT = 14, BOTTOM = 30, HEADING = 26, CURVE = 40, GAP = 12, STATIC = 44, LEAST = 14;

/** Stacks a plan's lanes, arenas first, in a world as high as the pane; the arenas' height represents `whole` bytes. */
function layout(plan, height, whole) {
  const regions = plan.regions.map((region, index) => ({ region, index })).filter(({ region }) => region.bytes > 0);
  regions.sort((a, b) => (b.region.arena - a.region.arena) || a.index - b.index);
  const lanesOf = (index) => plan.lanes.filter((lane) => lane.region === index);
  const arenas = regions.filter(({ region }) => region.arena).length;
  let fixed = 0;
  for (const { region, index } of regions) {
    fixed += HEADING + GAP + (region.arena ? CURVE + 6 : STATIC) + 4 * lanesOf(index).length;
  }
  const room = Math.max(140, height - fixed);
  const heads = [], lanes = [];
  let y = 2;
  for (const { region, index } of regions) {
    heads.push({ region, index, top: y, curve: region.arena ? y + HEADING : null });
    y += HEADING + (region.arena ? CURVE + 6 : 0);
    // Beside a larger plan, align the lowest addresses.
    if (region.arena && arenas === 1) y += room * (1 - region.bytes / whole);
    for (const lane of lanesOf(index)) {
      const tall = region.arena ? room * (lane.bytes / whole) : STATIC * (lane.bytes / region.bytes);
      const high = Math.max(LEAST, tall);
      lanes.push({ lane, region, top: y, height: high });
      y += high + 4;
    }
    y += GAP;
  }
  return { heads, lanes, height: Math.max(height, y) };
}

function arenaBytes(plan) {
  return plan.regions.reduce((sum, region) => sum + (region.arena ? region.bytes : 0), 0) || 1;
}

/** A canvas, the plan in it, and what part of it is seen: steps x0 to x1, world y0 to y1. */
function makePane(element) {
  const canvas = element.querySelector("canvas");
  return { element, canvas, caption: element.querySelector(".caption"), context: canvas.getContext("2d", { alpha: false }), plan: null, world: null, x0: 0, x1: 1, y0: 0, y1: 1, width: 1, height: 1 };
}

function plotWidth(pane) { return Math.max(1, pane.width - LEFT - RIGHT); }
function plotHeight(pane) { return Math.max(1, pane.height - BOTTOM); }
function toX(pane, step) { return LEFT + ((step - pane.x0) / (pane.x1 - pane.x0)) * plotWidth(pane); }
function toY(pane, y) { return ((y - pane.y0) / (pane.y1 - pane.y0)) * plotHeight(pane); }
function stepAt(pane, x) { return pane.x0 + ((x - LEFT) / plotWidth(pane)) * (pane.x1 - pane.x0); }
function worldAt(pane, y) { return pane.y0 + (y / plotHeight(pane)) * (pane.y1 - pane.y0); }
function laneY(pane, placed, bytes) { return toY(pane, placed.top + placed.height * (1 - bytes / placed.lane.bytes)); }
function bytesAt(pane, placed, y) { return placed.lane.bytes * (1 - (worldAt(pane, y) - placed.top) / placed.height); }

function fitPane(pane) { Object.assign(pane, { x0: 0, x1: pane.plan.steps, y0: 0, y1: pane.world.height }); }

/** Keeps what is seen inside the world, and not closer than a fraction of a step or a few bytes. */
function clampPane(pane) {
  const clamp = (low, high, most, least) => {
    const size = Math.min(most, Math.max(least, high - low));
    const middle = (low + high) / 2;
    const start = Math.min(Math.max(0, middle - size / 2), most - size);
    return [start, start + size];
  };
  [pane.x0, pane.x1] = clamp(pane.x0, pane.x1, pane.plan.steps, Math.min(pane.plan.steps, 1.5));
  [pane.y0, pane.y1] = clamp(pane.y0, pane.y1, pane.world.height, pane.world.height / 20000);
}

function zoomPane(pane, factor, x, y, which = "xy") {
  const step = stepAt(pane, x), world = worldAt(pane, y);
  if (which.includes("x")) { pane.x0 = step - (step - pane.x0) / factor; pane.x1 = step + (pane.x1 - step) / factor; }
  if (which.includes("y")) { pane.y0 = world - (world - pane.y0) / factor; pane.y1 = world + (pane.y1 - world) / factor; }
  clampPane(pane);
}

function panPane(pane, dx, dy) {
  const steps = (dx / plotWidth(pane)) * (pane.x1 - pane.x0), world = (dy / plotHeight(pane)) * (pane.y1 - pane.y0);
  pane.x0 += steps; pane.x1 += steps; pane.y0 += world; pane.y1 += world;
  clampPane(pane);
}

function placedOf(pane, id) {
  const { plan } = pane;
  return pane.world.lanes.find(({ lane }) => lane.region === plan.region[id] && lane.chunk === plan.chunk[id]);
}

/** A block on the canvas. */
function boxOf(pane, id) {
  const { plan } = pane, placed = placedOf(pane, id);
  const x = toX(pane, plan.start[id]), y = laneY(pane, placed, plan.offset[id] + plan.bytes[id]);
  return { x, y, w: toX(pane, plan.end[id]) - x, h: laneY(pane, placed, plan.offset[id]) - y };
}

/** Brings a block into view, with some room around it. */
function showBlock(pane, id) {
  const { plan } = pane, placed = placedOf(pane, id);
  const low = placed.top + placed.height * (1 - (plan.offset[id] + plan.bytes[id]) / placed.lane.bytes);
  const high = placed.top + placed.height * (1 - plan.offset[id] / placed.lane.bytes);
  const wide = Math.max((plan.end[id] - plan.start[id]) * 4, Math.min(plan.steps, 24));
  const tall = Math.max((high - low) * 5, pane.world.height / 400);
  const x = (plan.start[id] + plan.end[id]) / 2, y = (low + high) / 2;
  const width = Math.min(wide, pane.x1 - pane.x0), height = Math.min(tall, pane.y1 - pane.y0);
  Object.assign(pane, { x0: x - width / 2, x1: x + width / 2, y0: y - height / 2, y1: y + height / 2 });
  clampPane(pane);
}

/** The block under a point, or the nearest within a few pixels. */
function hit(pane, x, y) {
  if (x < LEFT || y > plotHeight(pane)) return -1;
  const { plan } = pane, reach = 3;
  let best = -1, nearest = reach + 0.01;
  for (const placed of pane.world.lanes) {
    if (toY(pane, placed.top) > y + reach || toY(pane, placed.top + placed.height) < y - reach) continue;
    const low = bytesAt(pane, placed, y + reach), high = bytesAt(pane, placed, y - reach);
    eachIn(plan, placed.lane, stepAt(pane, x - reach), stepAt(pane, x + reach), low, high, (id) => {
      const box = boxOf(pane, id);
      const away = Math.max(box.x - x, x - box.x - box.w, box.y - y, y - box.y - box.h, 0);
      if (away < nearest) { nearest = away; best = id; }
    });
  }
  return best;
}
