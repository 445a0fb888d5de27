// The requests that run, and those in the queue with what they wait for.

import { colorOf } from "./colors.js";
import { element } from "./dom.js";

/** A row for each request that runs. `point` is told which one the reader looks at. */
export function sequences(running, point) {
  return running.map(({ id, prompt, cached, fed, generated, most, elastic }) => {
    const mark = element("i");
    mark.style.backgroundColor = colorOf(id);
    const reads = generated === 0 && fed < prompt;
    const state = reads ? `reads its prompt: ${fed} of ${prompt}` : `${generated} of ${most} tokens`;
    const done = element("progress", { max: 1, value: reads ? fed / prompt : generated / most });
    const facts = [`prompt ${prompt}`, cached > 0 && `${cached} cached`, elastic && "may be parked"];
    const row = element(
      "li",
      {},
      element("div", {}, mark, element("b", {}, `#${id}`), element("span", {}, state)),
      done,
      element("small", {}, facts.filter(Boolean).join(" · ")),
    );
    row.onpointerenter = () => point(id);
    row.onpointerleave = () => point(null);
    return row;
  });
}

/** A row for each request that waits. */
export function waiting(queue) {
  return queue.map(({ id, prompt, generated, reason, wait }) => {
    const mark = element("i");
    mark.style.backgroundColor = colorOf(id);
    const size = generated > 0 ? `${prompt} + ${generated} tokens` : `${prompt} tokens`;
    const time = wait === null ? "" : ` · in about ${wait < 1 ? "1" : Math.ceil(wait)} s`;
    return element(
      "li",
      {},
      element("div", {}, mark, element("b", {}, `#${id}`), element("span", {}, size + time)),
      element("small", {}, why(reason)),
    );
  });
}

function why({ kind, needed, available, running, parallel }) {
  switch (kind) {
    case "new":
      return "has just come";
    case "parked":
      return "parked: its pages went to older requests";
    case "sequences":
      return `${running} of at most ${parallel} requests run`;
    case "pages":
      return `needs ${needed} pages, ${available} can be had`;
    case "prefix":
      return "waits for a prompt that begins alike, and shares its pages";
    case "behind":
      return "an older request is first";
    default:
      return kind;
  }
}
