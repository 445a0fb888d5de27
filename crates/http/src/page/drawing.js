// Markdown on the page: elements from blocks. While an answer grows, only blocks that have changed are drawn again.

import { copy, element, icon } from "./dom.js";
import { highlighted } from "./highlight.js";
import { blocks } from "./markdown.js";

/** What an element shows. */
const drawn = new WeakMap();

/** Shows a text in an element. */
export function draw(into, text) {
  const before = drawn.get(into) ?? [];
  const now = blocks(text).map((block, place) => {
    const same = before[place]?.source === block.source && before[place];
    return same || { source: block.source, node: drawBlock(block) };
  });
  now.forEach(({ node }, place) => {
    const old = before[place]?.node;
    if (old === node) return;
    if (old) old.replaceWith(node);
    else into.append(node);
  });
  before.slice(now.length).forEach(({ node }) => node.remove());
  drawn.set(into, now);
}

function drawBlock(block) {
  switch (block.kind) {
    case "paragraph":
      return element("p", {}, ...drawSpans(block.spans));
    case "heading":
      // The page's own headings are above those of a message.
      return element(`h${Math.min(block.level + 2, 6)}`, {}, ...drawSpans(block.spans));
    case "rule":
      return element("hr");
    case "quote":
      return element("blockquote", {}, ...block.blocks.map(drawBlock));
    case "code":
      return drawCode(block);
    case "list":
      return drawList(block);
    case "table":
      return drawTable(block);
  }
}

function drawList({ ordered, start, loose, items }) {
  const drawn = items.map(({ checked, blocks }) => {
    const inside = blocks.flatMap((block) => {
      return block.kind === "paragraph" && !loose ? drawSpans(block.spans) : [drawBlock(block)];
    });
    if (checked === null) return element("li", {}, ...inside);
    const box = element("input", { type: "checkbox", checked, disabled: true });
    return element("li", { className: "task" }, box, ...inside);
  });
  return ordered ? element("ol", { start }, ...drawn) : element("ul", {}, ...drawn);
}

function drawTable({ align, head, rows }) {
  const row = (tag, cells) => {
    const drawn = cells.map((spans, column) => {
      const properties = { className: align[column], ...(tag === "th" && { scope: "col" }) };
      return element(tag, properties, ...drawSpans(spans));
    });
    return element("tr", {}, ...drawn);
  };
  const body = element("tbody", {}, ...rows.map((cells) => row("td", cells)));
  const table = element("table", {}, element("thead", {}, row("th", head)), body);
  return element("div", { className: "table", tabIndex: 0 }, table);
}

function drawCode({ language, text }) {
  const label = "Copy this code";
  const press = ({ currentTarget }) => copy(text, currentTarget);
  const button = element(
    "button",
    { type: "button", className: "icon", title: label, onclick: press },
    icon("copy"),
  );
  button.setAttribute("aria-label", label);
  const parts = highlighted(text, language).map(({ kind, text }) => {
    return kind ? element("span", { className: kind }, text) : text;
  });
  return element(
    "figure",
    { className: "code" },
    element("figcaption", {}, element("span", {}, language || "text"), button),
    element("pre", { tabIndex: 0 }, element("code", {}, ...parts)),
  );
}

const TAGS = { strong: "strong", emphasis: "em", deleted: "del" };

function drawSpans(spans) {
  return spans.map((span) => {
    if (typeof span === "string") return span;
    if (span.kind === "break") return element("br");
    if (span.kind === "code") return element("code", {}, span.text);
    const inside = drawSpans(span.spans);
    if (span.kind !== "link") return element(TAGS[span.kind], {}, ...inside);
    // `safeAddress` has let it pass.
    return element("a", { href: span.href, target: "_blank", rel: "noopener noreferrer" }, ...inside);
  });
}
