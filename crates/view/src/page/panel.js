// Text: the tooltip under the pointer, and the panel beside the picture.

/** An element: its tag, its properties, what is in it. */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function swatch(kind) { return make("i", { style: "background:var(--k" + kind + ")", title: KINDS[kind] }); }

function terms(rows) {
  const list = make("dl");
  for (const [term, value, long] of rows) {
    if (value === null || value === "") continue;
    list.append(make("dt", {}, term), make("dd", { className: long ? "long" : "" }, ...[value].flat()));
  }
  return list;
}

function stepText(plan, step) {
  const name = stepName(plan, step);
  return "step " + number(step) + (name ? ", " + name : "");
}

/** The facts of a block as rows; `link` creates links to other blocks. */
function blockRows(plan, id, link, most) {
  const region = plan.regions[plan.region[id]];
  const chunk = region.chunks.length > 1 ? ", chunk " + plan.chunk[id] : "";
  const end = plan.end[id] - 1, users = usersOf(plan, id);
  const always = plan.start[id] === 0 && plan.end[id] >= plan.steps;
  const reason = [plan.reasons[plan.reason[id]]];
  if (plan.replaces[id]) reason.push("; it took the place of ", link(plan.replaces[id] - 1));
  if (plan.above[id]) reason.push("; it lies on ", link(plan.above[id] - 1));
  else if (plan.offset[id] === 0) reason.push("; it lies at the bottom");
  const shown = users.slice(0, most).map((step) => stepText(plan, step));
  if (users.length > most) shown.push(number(users.length - most) + " more");
  return [
    ["kind", KINDS[plan.kind[id]]],
    ["size", shortBytes(plan.bytes[id]) + " (" + number(plan.bytes[id]) + " bytes)"],
    ["place", region.device + " " + region.what + chunk + ", at " + number(plan.offset[id])],
    ["lifetime", always ? "always" : plan.end[id] - plan.start[id] === 1 ? "step " + number(end) : "steps " + number(plan.start[id]) + " to " + number(end)],
    ["producer", plan.producer[id] ? stepText(plan, plan.producer[id] - 1) : plan.start[id] ? "" : "none: exists before the first step", true],
    ["consumers", shown.length ? shown.join(" · ") : "", true],
    ["reason", reason, true],
  ];
}

function showCard(app, side, id, x, y) {
  const card = document.getElementById("card"), { plan } = app.panes[side];
  card.hidden = id < 0;
  if (id < 0) return;
  const plain = (other) => "“" + plan.name[other] + "”";
  card.replaceChildren(make("h2", {}, swatch(plan.kind[id]), plan.name[id]), terms(blockRows(plan, id, plain, 4)));
  const box = card.getBoundingClientRect();
  const right = x + 18 + box.width > innerWidth - 8, below = y + 18 + box.height > innerHeight - 8;
  card.style.left = Math.max(8, right ? x - box.width - 14 : x + 18) + "px";
  card.style.top = Math.max(8, below ? Math.min(y - 14, innerHeight - 8) - box.height : y + 18) + "px";
}

function showFacts(app) {
  const place = document.getElementById("facts");
  const parts = [];
  app.shown().forEach((pane, side) => {
    const { plan } = pane, total = plan.regions.reduce((sum, region) => sum + region.bytes, 0);
    const rows = plan.regions.filter((region) => region.bytes > 0).map((region) => [region.device + " " + region.what, shortBytes(region.bytes)]);
    for (const region of plan.regions.filter((region) => region.arena && region.bound !== null && region.bytes > 0)) {
      const gap = region.bound ? (100 * (region.bytes - region.bound)) / region.bound : 0;
      rows.push([region.device + " bound", shortBytes(region.bound) + (gap > 0.005 ? ", " + gap.toFixed(2) + " % below" : ", reached")]);
    }
    rows.push(["total", shortBytes(total)], ["steps", number(plan.steps)], ["tensors", number(plan.count)]);
    if (side === 1) {
      const before = app.panes[0].plan.regions.reduce((sum, region) => sum + region.bytes, 0), change = total - before;
      const percent = before ? " (" + (change >= 0 ? "+" : "−") + Math.abs((100 * change) / before).toFixed(1) + " %)" : "";
      const text = change === 0 ? "equal" : (change > 0 ? "+" : "−") + shortBytes(Math.abs(change)) + percent;
      rows.push(["compared to the left", make("span", { className: change > 0 ? "more" : change < 0 ? "less" : "" }, text)]);
    }
    parts.push(make("h2", {}, plan.title, make("small", {}, plan.note)), terms(rows), tradeOffCurve(plan) ?? "");
  });
  place.replaceChildren(...parts);
}

function showTensor(app, side) {
  const place = document.getElementById("tensor"), id = app.state.selected[side], { plan } = app.panes[side];
  if (id < 0) {
    const hint = make("p", { className: "hint" });
    hint.innerHTML = "Click a tensor or a step. Drag to move, roll to zoom; <kbd>shift</kbd> keeps the steps, <kbd>alt</kbd> the addresses. Keys: <kbd>+</kbd> <kbd>−</kbd> <kbd>0</kbd> zoom, arrows move, <kbd>,</kbd> <kbd>.</kbd> step, <kbd>p</kbd> peak, <kbd>/</kbd> find, <kbd>n</kbd> next, <kbd>c</kbd> compare.";
    place.replaceChildren(hint);
    return;
  }
  const link = (other) => make("button", { className: "link", onclick: () => app.select(side, other, true) }, plan.name[other]);
  place.replaceChildren(make("h2", {}, swatch(plan.kind[id]), " ", plan.name[id]), terms(blockRows(plan, id, link, 24)));
}

/** Rows of a list that are made; the rest is counted. */
const LISTED = 300;

function showStep(app, side) {
  const place = document.getElementById("step"), step = app.state.step[side], { plan } = app.panes[side];
  if (step < 0) { place.replaceChildren(); return; }
  const alive = aliveAt(plan, step);
  const sums = KINDS.map(() => 0);
  alive.forEach((id) => { sums[plan.kind[id]] += plan.bytes[id]; });
  const total = sums.reduce((a, b) => a + b, 0);
  const bar = make("div", { className: "bar" });
  sums.forEach((bytes, kind) => bytes && bar.append(make("i", { style: `width:${(100 * bytes) / total}%;background:var(--k${kind})`, title: KINDS[kind] + " " + shortBytes(bytes) })));
  const rows = make("ol");
  for (const id of alive.slice(0, LISTED)) {
    const button = make("button", { onclick: () => app.select(side, id, false), onmouseenter: () => app.point(side, id), onmouseleave: () => app.point(side, -1), title: plan.name[id] }, swatch(plan.kind[id]), make("span", {}, plan.name[id]), make("em", {}, shortBytes(plan.bytes[id])));
    if (id === app.state.selected[side]) button.setAttribute("aria-current", "true");
    rows.append(make("li", {}, button));
  }
  const arenas = plan.regions.filter((region) => region.arena).map((region) => inUse(region, step)).reduce((a, b) => a + b, 0);
  const head = make("h2", {}, "Step " + number(step), make("small", {}, stepName(plan, step)));
  const facts = make("p", { className: "hint" }, number(alive.length) + " tensors, " + shortBytes(total) + " in total, " + shortBytes(arenas) + " of the arena");
  const more = alive.length > LISTED ? make("p", { className: "hint" }, number(alive.length - LISTED) + " smaller tensors") : null;
  place.replaceChildren(...[head, facts, bar, rows, more].filter(Boolean));
}
