// The plan of each device as a bar: what each byte is for.

import { element } from "./dom.js";

const PARTS = [
  ["weights", "weights"],
  ["repacked", "repacked weights"],
  ["kv", "KV cache"],
  ["compute", "compute"],
];

/** A bar for each device, with its legend. */
export function devices(planned) {
  return planned.map((device) => {
    const parts = PARTS.filter(([field]) => device[field] > 0);
    const bars = parts.map(([field, what]) => {
      const bar = element("span", { className: field, title: `${what}: ${exact(device[field])}` });
      bar.style.flexGrow = device[field] / device.total;
      return bar;
    });
    const read = device.streamed > 0 ? [["streamed", "read from the file"]] : [];
    const legend = [...parts, ...read].map(([field, what]) => {
      const mark = element("i", { className: field });
      const size = element("b", { title: exact(device[field]) }, bytes(device[field]));
      return element("li", {}, mark, element("span", {}, what), size);
    });
    const of = device.free ? ` of ${bytes(device.free)}` : "";
    const head = element(
      "h4",
      {},
      device.name,
      element("b", { title: exact(device.total) }, bytes(device.total) + of),
    );
    const bar = element("div", { className: "bar", aria: { hidden: "true" } }, ...bars);
    return element("div", { className: "device" }, head, bar, element("ul", {}, ...legend));
  });
}

const exact = (count) => `${count.toLocaleString("en")} bytes`;

/** A size in the unit that suits it. */
export function bytes(count) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) {
    count /= 1024;
    unit++;
  }
  return `${count >= 100 || unit === 0 ? Math.round(count) : count.toFixed(1)} ${units[unit]}`;
}
