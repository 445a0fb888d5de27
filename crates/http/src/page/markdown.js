// Markdown as plain values: a text becomes blocks, and their text spans. `drawing.js` draws them.

import { spans } from "./spans.js";

/** Blocks in blocks; deeper ones are paragraphs. */
const DEEPEST = 12;

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:([ \t]+)(?=\S)|[ \t]*$)/;
const DIVIDER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

/** The blocks of a text, each with the lines that it was made from. */
export function blocks(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  return read(lines, 0).map(({ block, from, to }) => ({
    ...block,
    source: lines.slice(from, to).join("\n"),
  }));
}

function read(lines, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at++;
      continue;
    }
    const reader = depth < DEEPEST && READERS.find(([pattern]) => pattern(lines, at));
    const [block, to] = reader ? reader[1](lines, at, depth) : paragraph(lines, at, depth);
    found.push({ block, from: at, to });
    at = to;
  }
  return found;
}

const inner = (lines, depth) => read(lines, depth + 1).map(({ block }) => block);
const isBlank = (line) => /^\s*$/.test(line);
const expanded = (line) => line.replace(/^[ \t]+/, (indent) => indent.replaceAll("\t", "    "));
const indentOf = (line) => line.length - line.trimStart().length;

// What a block begins with, and how it is read: each reader gives the block and the line behind it.
const READERS = [
  [(lines, at) => FENCE.test(lines[at]), code],
  [(lines, at) => HEADING.test(lines[at]), heading],
  [(lines, at) => RULE.test(lines[at]), (_, at) => [{ kind: "rule" }, at + 1]],
  [(lines, at) => QUOTE.test(lines[at]), quote],
  [(lines, at) => ITEM.test(lines[at]), list],
  [isTable, table],
];

/** Whether a line ends the paragraph before it. */
function interrupts(lines, at) {
  const item = ITEM.exec(lines[at]);
  // A number at the beginning of a line is rarely a list, unless it is the first.
  if (item) return item[3] !== undefined && /^[-*+]|^1[.)]/.test(item[2]);
  return READERS.some(([pattern]) => pattern(lines, at));
}

function paragraph(lines, at, depth) {
  let to = at + 1;
  while (to < lines.length && !isBlank(lines[to]) && !(depth < DEEPEST && interrupts(lines, to))) to++;
  const text = lines
    .slice(at, to)
    .map((line) => line.trim())
    .join("\n");
  return [{ kind: "paragraph", spans: spans(text) }, to];
}

function code(lines, at) {
  const [, indent, fence, info] = FENCE.exec(lines[at]);
  const isEnd = (line) => {
    const mark = line.trim();
    return indentOf(line) < 4 && mark.length >= fence.length && mark === fence[0].repeat(mark.length);
  };
  let end = at + 1;
  while (end < lines.length && !isEnd(lines[end])) end++;
  const text = lines.slice(at + 1, end).map((line) => line.slice(Math.min(indentOf(line), indent.length)));
  const language = info.trim().split(/\s/)[0];
  return [{ kind: "code", language, text: text.join("\n") }, Math.min(end + 1, lines.length)];
}

function heading(lines, at) {
  const [mark, { length: level }] = HEADING.exec(lines[at]);
  let text = lines[at].slice(mark.length).trim();
  let end = text.length;
  while (text[end - 1] === "#") end--;
  if (end === 0 || /\s/.test(text[end - 1])) text = text.slice(0, end).trim();
  return [{ kind: "heading", level, spans: spans(text) }, at + 1];
}

function quote(lines, at, depth) {
  let to = at;
  while (to < lines.length && QUOTE.test(lines[to])) to++;
  const quoted = lines.slice(at, to).map((line) => line.replace(QUOTE, ""));
  return [{ kind: "quote", blocks: inner(quoted, depth) }, to];
}

function list(lines, at, depth) {
  const [, , first] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(first);
  const items = [];
  let loose = false;
  while (at < lines.length) {
    const mark = ITEM.exec(lines[at]);
    if (!mark || mark[2].at(-1) !== first.at(-1) || RULE.test(lines[at])) break;
    const width = mark[1].length + mark[2].length + (mark[3] && mark[3].length < 5 ? mark[3].length : 1);
    const content = [lines[at].slice(width)];
    let strip = width;
    let to = at + 1;
    for (; to < lines.length; to++) {
      const line = expanded(lines[to]);
      const indent = indentOf(line);
      const isItem = ITEM.test(line.trimStart());
      // Models indent items of inner lists by two, whatever the mark of the outer one.
      if (isItem && indent > mark[1].length + 1) strip = Math.min(strip, indent);
      const lazy = !isBlank(lines[to - 1]) && !isItem && !interrupts(lines, to);
      if (!isBlank(line) && indent < strip && !lazy) break;
      content.push(line.slice(Math.min(indent, strip)));
    }
    let blanks = 0;
    while (isBlank(content.at(-1) ?? "x")) {
      content.pop();
      blanks++;
    }
    const followed = to < lines.length && ITEM.exec(lines[to])?.[2].at(-1) === first.at(-1);
    loose ||= (blanks > 0 && followed) || (read(content, DEEPEST).length > 1 && content.some(isBlank));
    const task = /^\[([ xX])\] /.exec(content[0] ?? "");
    if (task) content[0] = content[0].slice(4);
    items.push({ checked: task ? task[1] !== " " : null, blocks: inner(content, depth) });
    at = to;
  }
  return [{ kind: "list", ordered, start: ordered ? parseInt(first, 10) : 1, loose, items }, at];
}

function isTable(lines, at) {
  const divider = lines[at + 1] ?? "";
  if (!lines[at].includes("|") || !divider.includes("-") || !DIVIDER.test(divider)) return false;
  return cells(lines[at]).length === cells(divider).length;
}

function table(lines, at) {
  const align = cells(lines[at + 1]).map((cell) => {
    const [left, right] = [cell.startsWith(":"), cell.endsWith(":")];
    return left && right ? "center" : right ? "right" : "left";
  });
  const row = (line) => {
    const texts = cells(line);
    return align.map((_, column) => spans(texts[column] ?? ""));
  };
  let to = at + 2;
  while (to < lines.length && !isBlank(lines[to]) && lines[to].includes("|")) to++;
  return [{ kind: "table", align, head: row(lines[at]), rows: lines.slice(at + 2, to).map(row) }, to];
}

/** The cells of a row. Bars in code or behind a backslash separate nothing. */
function cells(line) {
  const parts = line.trim().match(/(?:\\[^]|`[^`]*`|[^|\\])+|\|/g) ?? [];
  const texts = [""];
  for (const part of parts) {
    if (part === "|") texts.push("");
    else texts.push(texts.pop() + part.replaceAll("\\|", "|"));
  }
  if (parts[0] === "|") texts.shift();
  if (parts.at(-1) === "|") texts.pop();
  return texts.map((text) => text.trim());
}
