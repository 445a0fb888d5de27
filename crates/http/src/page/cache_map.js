// The pages of the KV cache, a cell each, colored by the requests that use them. A prefix that several requests
// share is one band with all their colors.

import { colorOf, styled } from "./colors.js";

const HEIGHT = 150;
const LARGEST = 14;
const SMALLEST = 3;

/** Colors that a cell has room for. */
const STRIPES = 4;

export class CacheMap {
  constructor(canvas, hint) {
    this.canvas = canvas;
    this.hint = hint;
    this.bands = [];
    this.pages = 0;
    this.pointed = null;
    canvas.onpointermove = (event) => this.hover(event);
    canvas.onpointerleave = () => this.say(null);
  }

  show({ uses, pages }) {
    const kept = uses.filter(({ requests }) => requests.length === 0);
    const held = uses.filter(({ requests }) => requests.length > 0);
    // What most requests share comes first.
    held.sort((a, b) => b.requests.length - a.requests.length);
    let from = 0;
    this.bands = [...held, ...kept].map((use) => {
      const band = { ...use, from };
      from += use.pages;
      return band;
    });
    this.pages = Math.max(pages, from);
    this.canvas.setAttribute("aria-label", this.bands.map(described).join("; ") || "No page is used.");
    this.draw();
  }

  /** Shows where the pages of a request are; of none with `null`. */
  point(id) {
    this.pointed = id;
    this.draw();
  }

  hover({ offsetX, offsetY }) {
    const { side, columns, each } = this.grid;
    const page = (Math.floor(offsetY / side) * columns + Math.floor(offsetX / side)) * each;
    this.say(this.bands.find(({ from, pages }) => from <= page && page < from + pages));
  }

  say(band) {
    this.hint.textContent = band ? described(band) : "";
  }

  /** Cells as large as fit; where the smallest do not, a cell is several pages. */
  get grid() {
    const width = this.canvas.clientWidth;
    for (let side = LARGEST; side >= SMALLEST; side--) {
      const columns = Math.max(Math.floor(width / side), 1);
      if (Math.ceil(this.pages / columns) * side <= HEIGHT) return { side, columns, each: 1 };
    }
    const columns = Math.max(Math.floor(width / SMALLEST), 1);
    const each = Math.ceil(this.pages / (columns * Math.floor(HEIGHT / SMALLEST)));
    return { side: SMALLEST, columns, each };
  }

  draw() {
    const { canvas, pages } = this;
    const width = canvas.clientWidth;
    if (!width || !pages) return;
    const { side, columns, each } = this.grid;
    const cells = Math.ceil(pages / each);
    const height = Math.ceil(cells / columns) * side;
    const scale = devicePixelRatio;
    canvas.style.height = `${height}px`;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const brush = canvas.getContext("2d");
    brush.scale(scale, scale);
    const gap = side > 5 ? 1.5 : 0.5;
    const colors = { free: styled("page-free"), kept: styled("page-kept") };
    let at = 0;
    for (let cell = 0; cell < cells; cell++) {
      while (at < this.bands.length && this.bands[at].from + this.bands[at].pages <= cell * each) at++;
      const band = this.bands[at];
      const [x, y] = [(cell % columns) * side, Math.floor(cell / columns) * side];
      const holds = band && band.from < (cell + 1) * each ? band.requests : null;
      brush.globalAlpha = this.pointed === null || holds?.includes(this.pointed) ? 1 : 0.25;
      const shades = !holds
        ? [colors.free]
        : holds.length
          ? holds.slice(0, STRIPES).map(colorOf)
          : [colors.kept];
      const stripe = (side - gap) / shades.length;
      const joins =
        shades.length > 1 && (cell + 1) * each < band.from + band.pages && (cell + 1) % columns > 0;
      shades.forEach((shade, place) => {
        brush.fillStyle = shade;
        brush.fillRect(x, y + place * stripe, joins ? side : side - gap, stripe);
      });
    }
  }
}

function described({ requests, pages, rows }) {
  const size = `${pages} ${pages === 1 ? "page" : "pages"}, ${rows} tokens`;
  const names = requests.map((id) => `#${id}`).join(", ");
  if (requests.length === 0) return `kept for later requests: ${size}`;
  return requests.length === 1 ? `${names}: ${size}` : `shared by ${names}: ${size}`;
}
