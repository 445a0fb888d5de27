// The state of the page and its changes.

const plans = [];
function planAt(index) { return (plans[index] ||= makePlan(DATA.pictures[index])); }

const app = {
  panes: [...document.querySelectorAll(".pane")].map(makePane),
  state: { hover: [-1, -1], twin: [-1, -1], selected: [-1, -1], step: [-1, -1], matches: [null, null], match: -1, kind: -1, compare: false },
  lastDrawMs: 0, drawn: 0, waiting: false,

  shown() { return this.panes.slice(0, this.state.compare ? 2 : 1); },

  /** Puts a plan into a pane, as it is seen whole. */
  put(side, index) {
    const pane = this.panes[side];
    pane.plan = planAt(index);
    for (const list of ["hover", "twin", "selected", "step"]) this.state[list][side] = -1;
    this.state.matches[side] = null;
    document.getElementById(side ? "right" : "left").value = String(index);
    this.arrange();
    this.fit();
    this.say();
  },

  say() {
    for (const pane of this.shown()) {
      const region = mainRegion(pane.plan);
      pane.caption.replaceChildren(make("b", {}, pane.plan.title), `  ·  peak ${shortBytes(region.peak)} at ${stepText(pane.plan, region.peak_step)}`);
    }
    showFacts(this);
    showTensor(this, 0);
    showStep(this, 0);
    makeLegend(this);
    document.title = this.panes[0].plan.title + " · memory";
  },

  /** Sizes of canvases and lanes; arenas of two plans stand for bytes alike. */
  arrange() {
    const shown = this.shown().filter(({ plan }) => plan);
    const whole = Math.max(...shown.map(({ plan }) => arenaBytes(plan)));
    for (const pane of shown) {
      const box = pane.canvas.getBoundingClientRect();
      const old = pane.world && pane.world.height;
      pane.width = box.width;
      pane.height = box.height;
      pane.world = layout(pane.plan, plotHeight(pane), whole);
      if (old) { pane.y0 *= pane.world.height / old; pane.y1 *= pane.world.height / old; clampPane(pane); }
    }
    this.redraw();
  },

  fit() { this.shown().forEach(fitPane); this.redraw(); },

  compare(on) {
    if (on && DATA.pictures.length < 2) return;
    this.state.compare = on;
    this.panes[1].element.hidden = !on;
    document.getElementById("right-label").hidden = !on;
    document.getElementById("compare").setAttribute("aria-pressed", String(on));
    if (on) {
      const left = Number(document.getElementById("left").value);
      this.put(1, this.panes[1].plan ? Number(document.getElementById("right").value) : (left + 1) % DATA.pictures.length);
    }
    this.arrange();
    this.fit();
    this.say();
    search(this, document.getElementById("query").value);
  },

  /** The block of the same name in the other pane. */
  twinOf(side, id) {
    if (!this.state.compare || id < 0) return -1;
    return this.panes[1 - side].plan.name.indexOf(this.panes[side].plan.name[id]);
  },

  hover(side, id, x, y) {
    showCard(this, side, id, x, y);
    this.point(side, id);
  },

  point(side, id) {
    if (this.state.hover[side] === id) return;
    this.state.hover[side] = id;
    this.state.twin[1 - side] = this.twinOf(side, id);
    this.redraw();
  },

  select(side, id, show) {
    const pane = this.panes[side];
    this.state.selected = [-1, -1];
    this.state.selected[side] = id;
    this.state.selected[1 - side] = this.twinOf(side, id);
    if (show && id >= 0) { showBlock(pane, id); follow(this, pane); }
    showTensor(this, side);
    showStep(this, side);
    this.redraw();
  },

  setStep(side, step) {
    this.state.step[side] = step;
    if (this.state.compare) this.state.step[1 - side] = Math.min(step, this.panes[1 - side].plan.steps - 1);
    showStep(this, side);
    this.redraw();
  },

  click(side, x, y) {
    const pane = this.panes[side];
    this.state.step[side] = Math.max(0, Math.min(pane.plan.steps - 1, Math.floor(stepAt(pane, x))));
    if (this.state.compare) this.state.step[1 - side] = Math.min(this.state.step[side], this.panes[1 - side].plan.steps - 1);
    this.select(side, hit(pane, x, y), false);
  },

  clear() {
    for (const list of ["selected", "step", "twin"]) this.state[list] = [-1, -1];
    showTensor(this, 0);
    showStep(this, 0);
    this.redraw();
  },

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  },

  draw() {
    const begin = performance.now();
    this.drawn = 0;
    this.shown().forEach((pane, side) => { if (pane.world) this.drawn += drawPane(pane, this.state, side); });
    this.lastDrawMs = performance.now() - begin;
  },

  /** Milliseconds of zoom steps towards a point, pixels included: reading one back waits for all. */
  measure(steps, factor, x, y) {
    const pane = this.panes[0], took = [];
    for (let i = 0; i < steps; i++) {
      const begin = performance.now();
      zoomPane(pane, factor, x, y);
      this.draw();
      pane.context.getImageData(0, 0, 1, 1);
      took.push(performance.now() - begin);
    }
    return took;
  },

  /** Where a block is on the screen: the middle of what is seen of it. */
  centre(side, id) {
    const pane = this.panes[side], box = boxOf(pane, id), on = pane.canvas.getBoundingClientRect();
    const middle = (from, size, low, high) => (Math.max(from, low) + Math.min(from + size, high)) / 2;
    return [on.left + middle(box.x, box.w, LEFT, LEFT + plotWidth(pane)), on.top + middle(box.y, box.h, 0, plotHeight(pane))];
  },
};

for (const id of ["left", "right"]) {
  const select = document.getElementById(id);
  select.append(...DATA.pictures.map((picture, index) => make("option", { value: String(index) }, picture.title)));
  select.onchange = () => app.put(id === "left" ? 0 : 1, Number(select.value));
}
document.getElementById("compare").hidden = DATA.pictures.length < 2;
readColours();
listenToTools(app);
listenToKeys(app);
app.panes.forEach((pane, side) => listenTo(app, pane, side));
app.put(0, 0);
if (DATA.beside) app.compare(true);
new ResizeObserver(() => { app.arrange(); }).observe(document.getElementById("panes"));
window.orlop = app;
