// What the server does now: its feed, and the panel that shows it.

import { ask, events } from "./api.js";
import { CacheMap } from "./cache_map.js";
import { byId, element } from "./dom.js";
import { devices } from "./memory.js";
import { sequences, waiting } from "./requests.js";
import { aboutModel } from "./settings.js";
import { SpeedLine } from "./speed.js";

/** Time before a feed that ended is asked for again, in milliseconds. */
const AGAIN = 2000;

/** The panel. It listens only while it can be seen: a feed holds a connection, and costs snapshots. */
export class Live {
  constructor() {
    this.plan = null;
    this.listening = null;
    this.map = new CacheMap(byId("cache"), byId("cache-hint"));
    this.speed = new SpeedLine(byId("speed-line"));
    document.addEventListener("visibilitychange", () => this.update());
    addEventListener("resize", () => this.map.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  get isShown() {
    return !byId("live").hidden;
  }

  toggle(shown = !this.isShown) {
    byId("live").hidden = !shown;
    byId("live-toggle").setAttribute("aria-expanded", shown);
    this.update();
  }

  /** Listens, or ceases to. */
  update() {
    const wanted = this.isShown && !document.hidden;
    if (wanted && !this.listening) this.listen();
    if (!wanted) this.listening?.abort();
  }

  /** Listens to another model. */
  change() {
    this.listening?.abort();
  }

  async listen() {
    const abort = (this.listening = new AbortController());
    try {
      for await (const { name, data } of events(await ask(aboutModel("/orlop/live"), { signal: abort.signal }))) {
        if (name === "plan") this.showPlan(JSON.parse(data));
        else this.show(JSON.parse(data));
      }
    } catch (error) {
      if (error.name !== "AbortError") this.state(error.message, "away");
    }
    const retry = () => {
      this.listening = null;
      this.update();
    };
    // The feed may be wanted again since it was ended.
    setTimeout(retry, abort.signal.aborted ? 0 : AGAIN);
  }

  state(text, kind) {
    byId("live-state").textContent = text;
    byId("live-state").dataset.kind = kind;
  }

  showPlan(plan) {
    this.plan = plan;
    byId("devices").replaceChildren(...devices(plan.devices));
    const { parallel, context, batch } = plan;
    byId("limits").textContent =
      `${number(parallel)} requests at a time, ${number(context)} tokens each, ${number(batch)} in a step`;
  }

  show(snapshot) {
    const { running, queue, waiting: all, pages, free, evictable, counts } = snapshot;
    this.state(stateOf(running.length, all), running.length ? "busy" : "idle");
    this.speed.add(counts.generated_tokens, counts.prompt_tokens, running.length > 0);
    byId("speed").textContent = this.speed.text();
    const used = pages - free;
    byId("cache-facts").textContent =
      `${number(used)} of ${number(pages)} pages used, ${number(evictable)} of them kept for later; ` +
      `${number(this.plan.page_rows)} tokens a page`;
    // A row that is gone is no longer left.
    if (!running.some(({ id }) => id === this.map.pointed)) this.map.pointed = null;
    this.map.show(snapshot);
    byId("running").replaceChildren(...sequences(running, (id) => this.map.point(id)));
    byId("queue").replaceChildren(...waiting(queue));
    byId("no-running").hidden = running.length > 0;
    byId("queue-rest").textContent = all > queue.length ? `and ${number(all - queue.length)} more` : "";
    byId("no-queue").hidden = all > 0;
    const { cached_tokens: cached, parked, evicted_pages: evicted } = counts;
    const facts = [
      ["tokens from the cache", cached],
      ["parked", parked],
      ["pages evicted", evicted],
    ];
    byId("counts").replaceChildren(
      ...facts.map(([what, count]) => element("li", {}, element("b", {}, number(count)), ` ${what}`)),
    );
  }

  /** Draws what is not drawn by style sheets again, in the colors of another theme. */
  redraw() {
    this.map.draw();
    this.speed.draw();
  }
}

const number = (value) => value.toLocaleString("en");

function stateOf(running, waiting) {
  if (running === 0 && waiting === 0) return "idle";
  return `${running} running${waiting ? `, ${waiting} waiting` : ""}`;
}
