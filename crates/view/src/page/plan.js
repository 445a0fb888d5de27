"use strict";
// Plans in the page: columns as typed arrays, and an index per lane.

const DATA = JSON.parse(document.getElementById("data").textContent);
const KINDS = DATA.kinds;
/** Blocks that are passed over together when none of them can be seen. */
const GROUP = 64;

function makePlan(c) {
  const count = c.name.length;
  const plan = {
    title: c.title, note: c.note, steps: Math.max(1, c.steps), stepNames: c.step_names, regions: c.regions, count,
    name: c.name, reasons: c.reasons,
    kind: Uint8Array.from(c.kind), region: Uint16Array.from(c.region), chunk: Uint32Array.from(c.chunk),
    offset: Float64Array.from(c.offset), bytes: Float64Array.from(c.bytes), start: Float64Array.from(c.start),
    end: Float64Array.from(c.start, (start, i) => start + c.span[i]),
    producer: c.producer, reason: c.reason, replaces: c.replaces, above: c.above,
    used: c.uses, users: c.users, tradeOffs: c.trade_offs, firstUser: new Uint32Array(count + 1), lanes: [],
  };
  for (let i = 0; i < count; i++) plan.firstUser[i + 1] = plan.firstUser[i] + c.uses[i];
  plan.regions.forEach((region, r) => {
    region.bytes = region.chunks.reduce((sum, bytes) => sum + bytes, 0);
    region.chunks.forEach((bytes, chunk) => bytes > 0 && plan.lanes.push({ region: r, chunk, bytes, ids: [] }));
  });
  const lanes = new Map(plan.lanes.map((lane) => [lane.region + ":" + lane.chunk, lane]));
  for (let i = 0; i < count; i++) lanes.get(plan.region[i] + ":" + plan.chunk[i])?.ids.push(i);
  plan.lanes.forEach((lane) => indexLane(plan, lane));
  plan.regions.forEach((region, r) => { region.curve = curveOf(plan, r); });
  return plan;
}

/** Sorts a lane's blocks by time, and keeps what each group of neighbours spans. */
function indexLane(plan, lane) {
  lane.ids = Uint32Array.from(lane.ids).sort((a, b) => plan.start[a] - plan.start[b] || plan.offset[a] - plan.offset[b]);
  const groups = Math.ceil(lane.ids.length / GROUP);
  lane.until = new Float64Array(groups);
  lane.low = new Float64Array(groups).fill(Infinity);
  lane.high = new Float64Array(groups);
  lane.ids.forEach((id, at) => {
    const g = (at / GROUP) | 0;
    lane.until[g] = Math.max(lane.until[g], plan.end[id]);
    lane.low[g] = Math.min(lane.low[g], plan.offset[id]);
    lane.high[g] = Math.max(lane.high[g], plan.offset[id] + plan.bytes[id]);
  });
}

/** Calls `see` for each block of a lane that overlaps these steps and bytes. */
function eachIn(plan, lane, from, to, low, high, see) {
  const { ids, until } = lane;
  for (let g = 0; g < until.length; g++) {
    const first = g * GROUP;
    if (plan.start[ids[first]] >= to) return;
    if (until[g] <= from || lane.low[g] >= high || lane.high[g] <= low) continue;
    const last = Math.min(first + GROUP, ids.length);
    for (let at = first; at < last; at++) {
      const id = ids[at];
      if (plan.start[id] >= to) return;
      if (plan.end[id] > from && plan.offset[id] < high && plan.offset[id] + plan.bytes[id] > low) see(id);
    }
  }
}

/** Bytes in use of a region: steps, and what holds from each to the next. */
function curveOf(plan, region) {
  const changes = [];
  for (let i = 0; i < plan.count; i++) {
    if (plan.region[i] === region) changes.push([plan.start[i], plan.bytes[i]], [plan.end[i], -plan.bytes[i]]);
  }
  changes.sort((a, b) => a[0] - b[0]);
  const at = [], bytes = [];
  let now = 0;
  for (const [step, change] of changes) {
    now += change;
    if (at[at.length - 1] === step) bytes[bytes.length - 1] = now;
    else { at.push(step); bytes.push(now); }
  }
  return { at, bytes };
}

function inUse(region, step) {
  const { at, bytes } = region.curve;
  let low = 0, high = at.length;
  while (low < high) { const mid = (low + high) >> 1; at[mid] <= step ? (low = mid + 1) : (high = mid); }
  return low ? bytes[low - 1] : 0;
}

/** Blocks that are there at a step: what is computed before what stays, the largest first. */
function aliveAt(plan, step) {
  const found = [];
  for (const lane of plan.lanes) eachIn(plan, lane, step, step + 1, -1, Infinity, (id) => found.push(id));
  const stays = (id) => !plan.regions[plan.region[id]].arena;
  return found.sort((a, b) => stays(a) - stays(b) || plan.bytes[b] - plan.bytes[a] || a - b);
}

function usersOf(plan, id) {
  const found = [];
  let step = plan.start[id];
  for (let at = plan.firstUser[id]; at < plan.firstUser[id + 1]; at++) found.push((step += plan.users[at]));
  return found;
}

/** The arena that most is in, and so the step that matters most. */
function mainRegion(plan) {
  return plan.regions.reduce((best, region) => (region.arena && (!best || region.peak > best.peak) ? region : best), null)
    || plan.regions[0];
}

function stepName(plan, step) { return plan.stepNames[step] || ""; }

function shortBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (bytes >= 1023.995 && unit + 1 < units.length) { bytes /= 1024; unit++; }
  return (unit ? bytes.toFixed(2) : Math.round(bytes)) + " " + units[unit];
}

/** A byte count on an axis, with enough decimals to distinguish ticks `every` bytes apart. */
function tickBytes(bytes, every) {
  if (!bytes) return "0 B";
  const unit = Math.min(6, Math.max(0, Math.floor(Math.log2(bytes) / 10))), size = 1024 ** unit;
  let decimals = 0;
  while (decimals < 4 && (every / size) * 10 ** decimals % 1) decimals++;
  return (bytes / size).toFixed(decimals).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "") + " " + ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit];
}

function number(value) { return value.toLocaleString("en-US"); }
