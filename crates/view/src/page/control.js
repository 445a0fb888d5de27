// User input: pointer, wheel, keys, search, choices.

/** Moves both panes alike: the other one sees the same part of its own steps and lanes. */
function follow(app, pane) {
  for (const other of app.shown().filter((other) => other !== pane)) {
    const part = (value, from, to) => (value / from) * to;
    other.x0 = part(pane.x0, pane.plan.steps, other.plan.steps);
    other.x1 = part(pane.x1, pane.plan.steps, other.plan.steps);
    other.y0 = part(pane.y0, pane.world.height, other.world.height);
    other.y1 = part(pane.y1, pane.world.height, other.world.height);
    clampPane(other);
  }
  app.redraw();
}

function listenTo(app, pane, side) {
  const { canvas } = pane;
  let from = null, moved = false;
  const at = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const [x, y] = at(event);
    const amount = event.deltaMode === 1 ? event.deltaY * 30 : event.deltaY || event.deltaX;
    const factor = Math.exp(-Math.max(-240, Math.min(240, amount)) / 400);
    zoomPane(pane, factor, Math.max(LEFT, x), y, event.shiftKey ? "y" : event.altKey ? "x" : "xy");
    follow(app, pane);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { if (event.button === 0) { from = at(event); moved = false; canvas.setPointerCapture(event.pointerId); } });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (from) {
      if (!moved && Math.hypot(x - from[0], y - from[1]) < 4) return;
      moved = true;
      canvas.classList.add("dragging");
      panPane(pane, from[0] - x, from[1] - y);
      from = [x, y];
      app.hover(side, -1);
      follow(app, pane);
      return;
    }
    app.hover(side, hit(pane, x, y), event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerup", (event) => {
    const [x, y] = at(event);
    canvas.classList.remove("dragging");
    if (from && !moved && x >= LEFT) app.click(side, x, y);
    from = null;
  });
  canvas.addEventListener("pointercancel", () => { from = null; canvas.classList.remove("dragging"); });
  canvas.addEventListener("pointerleave", () => app.hover(side, -1));
  canvas.addEventListener("dblclick", (event) => { const [x, y] = at(event); zoomPane(pane, 2.5, x, y); follow(app, pane); });
}

function zoomMiddle(app, factor) {
  const pane = app.panes[0];
  zoomPane(pane, factor, LEFT + plotWidth(pane) / 2, plotHeight(pane) / 2);
  follow(app, pane);
}

/** Blocks whose names hold all the words. */
function search(app, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  app.panes.forEach((pane, side) => {
    if (!words.length || !pane.plan) { app.state.matches[side] = null; return; }
    const found = new Set();
    pane.plan.name.forEach((name, id) => { const lower = name.toLowerCase(); if (words.every((word) => lower.includes(word))) found.add(id); });
    app.state.matches[side] = found;
  });
  app.state.match = -1;
  countMatches(app);
  app.redraw();
}

function countMatches(app) {
  const found = app.state.matches[0], output = document.getElementById("count");
  output.value = !found ? "" : app.state.match >= 0 ? number(app.state.match + 1) + " of " + number(found.size) : number(found.size) + " found";
}

/** Goes to the next match, or the one before. */
function nextMatch(app, by) {
  const found = app.state.matches[0] && [...app.state.matches[0]];
  if (!found || !found.length) return;
  app.state.match = (app.state.match + by + found.length) % found.length;
  countMatches(app);
  app.select(0, found[app.state.match], true);
}

function goToPeak(app) {
  const pane = app.panes[0];
  app.setStep(0, mainRegion(pane.plan).peak_step);
  const half = (pane.x1 - pane.x0) / 2, step = app.state.step[0] + 0.5;
  Object.assign(pane, { x0: step - half, x1: step + half });
  clampPane(pane);
  follow(app, pane);
}

function listenToKeys(app) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey) return;
    const typing = event.target.matches("input,select");
    if (event.key === "Escape") { document.getElementById("query").value = ""; search(app, ""); app.clear(); document.activeElement.blur(); return; }
    if (typing) return;
    const pane = app.panes[0], far = event.shiftKey ? 0.5 : 0.12;
    const pan = (dx, dy) => { panPane(pane, dx * plotWidth(pane), dy * plotHeight(pane)); follow(app, pane); };
    const keys = {
      "+": () => zoomMiddle(app, 1.5), "=": () => zoomMiddle(app, 1.5), "-": () => zoomMiddle(app, 1 / 1.5), "0": () => app.fit(),
      ArrowLeft: () => pan(-far, 0), ArrowRight: () => pan(far, 0), ArrowUp: () => pan(0, -far), ArrowDown: () => pan(0, far),
      ",": () => app.setStep(0, Math.max(0, app.state.step[0] - 1)), ".": () => app.setStep(0, Math.min(pane.plan.steps - 1, app.state.step[0] + 1)),
      p: () => goToPeak(app), "/": () => document.getElementById("query").focus(), n: () => nextMatch(app, 1), N: () => nextMatch(app, -1), c: () => app.compare(!app.state.compare),
    };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
}

function makeLegend(app) {
  const list = document.getElementById("legend");
  const there = KINDS.map((_, kind) => app.shown().some(({ plan }) => plan.kind.includes(kind)));
  list.replaceChildren(...KINDS.map((name, kind) => {
    if (!there[kind]) return null;
    const button = make("button", { type: "button", onclick: () => { app.state.kind = app.state.kind === kind ? -1 : kind; makeLegend(app); app.redraw(); } }, swatch(kind), name);
    button.setAttribute("aria-pressed", String(app.state.kind === kind));
    return make("li", {}, button);
  }).filter(Boolean));
}

function listenToTools(app) {
  const on = (id, what) => { document.getElementById(id).onclick = what; };
  on("in", () => zoomMiddle(app, 1.5));
  on("out", () => zoomMiddle(app, 1 / 1.5));
  on("fit", () => app.fit());
  on("to-peak", () => goToPeak(app));
  on("compare", () => app.compare(!app.state.compare));
  const query = document.getElementById("query");
  query.oninput = () => search(app, query.value);
  query.onkeydown = (event) => { if (event.key === "Enter") { event.preventDefault(); nextMatch(app, event.shiftKey ? -1 : 1); } };
  document.getElementById("search").onsubmit = (event) => event.preventDefault();
  const themes = ["auto", "light", "dark"], button = document.getElementById("theme");
  const setTheme = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = theme[0].toUpperCase() + theme.slice(1);
    button.dataset.now = theme;
    // A page opened from disk may have no local storage.
    try { localStorage.setItem("orlop-theme", theme); } catch { /* then it is not kept */ }
    readColours();
    app.redraw();
  };
  button.onclick = () => setTheme(themes[(themes.indexOf(button.dataset.now) + 1) % themes.length]);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); app.redraw(); });
  let kept = "auto";
  try { kept = localStorage.getItem("orlop-theme") || "auto"; } catch { /* nothing is kept */ }
  setTheme(themes.includes(kept) ? kept : "auto");
}
