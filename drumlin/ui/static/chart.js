/** Charts as SVG, drawn at the width they have, so their text is as readable on a phone as on a wide screen. */

import { fill, h, say, svg } from "./dom.js";
import { clock, clockShort, day, duration, rate } from "./format.js";
import { CLASSES } from "./live.js";

/** @typedef {import("./live.js").Point} Point */
/** @typedef {import("./live.js").Mark} Mark */
/** @typedef {{time: number, total: number, of: Record<string, number>} | null} Bin */

const CLASS_NAMES = /** @type {Record<string, string>} */ ({
  ok: "2xx", moved: "3xx", refused: "4xx", broken: "5xx and errors",
});
const WINDOW_S_MIN = 30;
const BINS = 90;
const BIN_S_MIN = 2;
const EDGE = { left: 40, right: 8, top: 22, bottom: 22 };
const MARK_CHARS = 28;
const CHAR_PX = 6.4;

/** The next of 1, 2, 5, 10, 20, … @param {number} value */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= value) ?? 10 * power;
}

/** How many seconds to show: all that is known, so the chart is as wide as there is something to tell. @param {Point[]} points */
function windowOf(points) {
  return Math.max(WINDOW_S_MIN, points.length ? points[points.length - 1].time - points[0].from : 0);
}

/**
 * Averages of the points in equal steps; null where there are none.
 * @param {Point[]} points @param {number} end @param {number} windowS @returns {Bin[]}
 */
function bins(points, end, windowS) {
  const step = Math.max(BIN_S_MIN, windowS / BINS);
  const many = Math.round(windowS / step);
  const begin = end - windowS;
  const parts = Array.from({ length: many }, () => ({ seconds: 0, of: { ok: 0, moved: 0, refused: 0, broken: 0 } }));
  for (const point of points) {
    // A point counts for each step by the time that it has in common with it.
    for (let at = Math.max(0, Math.floor((point.from - begin) / step)); at < many && begin + at * step < point.time; at += 1) {
      const seconds = Math.min(point.time, begin + (at + 1) * step) - Math.max(point.from, begin + at * step);
      if (seconds <= 0) continue;
      parts[at].seconds += seconds;
      for (const name of CLASSES) parts[at].of[name] += point[name] * seconds;
    }
  }
  return parts.map(({ seconds, of }, at) => {
    if (!seconds) return null;
    const rates = Object.fromEntries(CLASSES.map((name) => [name, of[name] / seconds]));
    return { time: begin + (at + 0.5) * step, total: CLASSES.reduce((sum, name) => sum + rates[name], 0), of: rates };
  });
}

/** Pages a second by answer, with marks; redrawn by `draw`. */
export class RatesChart {
  constructor() {
    this.canvas = svg("svg", { role: "img", class: "chart" });
    this.values = Object.fromEntries(CLASSES.map((name) => [name, h("b", null, "")]));
    this.at = h("span.at", null, "");
    const keys = CLASSES.map((name) => h("span", null, h(`i.key.${name}`), `${CLASS_NAMES[name]} `, this.values[name]));
    this.legend = h("p.legend", null, keys, this.at);
    this.node = h("div.plot", null, this.canvas);
    /** @type {Bin[]} */
    this.shown = [];
    this.pointed = -1;
    /** @type {() => void} */
    this.redraw = () => {};
    this.canvas.addEventListener("pointermove", (event) => this.point(/** @type {PointerEvent} */ (event).offsetX));
    this.canvas.addEventListener("pointerleave", () => this.point(-1));
    this.observer = new ResizeObserver(() => this.redraw());
    this.observer.observe(this.node);
  }

  /** @param {number} x */
  point(x) {
    const width = this.node.clientWidth - EDGE.left - EDGE.right;
    const at = Math.floor(((x - EDGE.left) / width) * this.shown.length);
    this.pointed = x >= 0 && at >= 0 && at < this.shown.length ? at : -1;
    this.redraw();
  }

  /** @param {Point[]} points @param {Mark[]} marks @param {number} now @param {boolean} whole whether these are all points of the time */
  draw(points, marks, now, whole) {
    this.redraw = () => this.draw(points, marks, now, whole);
    const windowS = windowOf(points);
    this.shown = bins(points, now, windowS);
    const width = Math.max(200, this.node.clientWidth);
    const height = width < 560 ? 170 : 220;
    const top = nice(Math.max(1, ...this.shown.map((bin) => bin?.total ?? 0)));
    const x = (/** @type {number} */ time) => EDGE.left + ((time - now + windowS) / windowS) * (width - EDGE.left - EDGE.right);
    const y = (/** @type {number} */ value) => height - EDGE.bottom - (value / top) * (height - EDGE.top - EDGE.bottom);
    this.canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.canvas.setAttribute("height", String(height));
    this.canvas.setAttribute("aria-label", this.words(windowS));
    const seen = marks.filter((mark) => mark.time > now - windowS);
    fill(
      this.canvas,
      this.grid(top, width, y), this.times(now, windowS, width, height, x), ...this.areas(x, y),
      ...this.marks(seen, width, height, x), this.pointer(height, x),
      whole && !this.shown.some((bin) => bin?.total) && svg("text", { class: "none", x: width / 2, y: height / 2, "text-anchor": "middle" }, "No page was fetched in this time."),
    );
    this.tell();
  }

  /** @param {number} top @param {number} width @param {(value: number) => number} y */
  grid(top, width, y) {
    const lines = [0, top / 2, top].map((value) => [
      svg("line", { class: value ? "grid" : "axis", x1: EDGE.left, x2: width - EDGE.right, y1: y(value), y2: y(value) }),
      svg("text", { x: EDGE.left - 8, y: y(value) + 4, "text-anchor": "end" }, rate(value)),
    ]);
    return svg("g", {}, lines.flat());
  }

  /** @param {number} now @param {number} windowS @param {number} width @param {number} height @param {(time: number) => number} x */
  times(now, windowS, width, height, x) {
    const many = width < 560 ? 2 : 5;
    const step = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 2 * 3600, 6 * 3600, 86_400, 7 * 86_400].find((one) => windowS / one <= many + 1) ?? 7 * 86_400;
    const first = Math.ceil((now - windowS) / step) * step;
    const texts = [];
    for (let time = first; time <= now; time += step) {
      const at = x(time);
      if (at < EDGE.left + 10 || at > width - 26) continue;
      texts.push(svg("text", { x: at, y: height - 5, "text-anchor": "middle" }, step < 60 ? clock(time) : step < 86_400 ? clockShort(time) : day(time)));
    }
    return svg("g", {}, texts);
  }

  /** @param {(time: number) => number} x @param {(value: number) => number} y */
  areas(x, y) {
    return segments(this.shown).flatMap((segment) => {
      let low = segment.map(() => 0);
      return CLASSES.map((name) => {
        const high = segment.map((bin, at) => low[at] + bin.of[name]);
        const upper = segment.map((bin, at) => `${x(bin.time).toFixed(1)},${y(high[at]).toFixed(1)}`);
        const lower = segment.map((bin, at) => `${x(bin.time).toFixed(1)},${y(low[at]).toFixed(1)}`).reverse();
        low = high;
        return svg("polygon", { class: `area ${name}`, points: [...upper, ...lower].join(" ") });
      });
    });
  }

  /** @param {Mark[]} marks @param {number} width @param {number} height @param {(time: number) => number} x */
  marks(marks, width, height, x) {
    let free = 0;
    return marks.map(({ time, text }) => {
      const at = x(time);
      const words = text.length > MARK_CHARS ? `${text.slice(0, MARK_CHARS)}…` : text;
      const wide = words.length * CHAR_PX;
      const left = at + 4 + wide > width - EDGE.right;
      const begins = left ? at - 4 - wide : at + 4;
      const fits = begins >= free && begins >= 0;
      if (fits) free = begins + wide + 8;
      const line = svg("line", { class: "mark", x1: at, x2: at, y1: EDGE.top - 8, y2: height - EDGE.bottom });
      const label = fits && svg("text", { class: "mark", x: left ? at - 4 : at + 4, y: 11, "text-anchor": left ? "end" : "start" }, words);
      return svg("g", {}, svg("title", {}, `${clock(time)} ${text}`), line, label);
    });
  }

  /** @param {number} height @param {(time: number) => number} x */
  pointer(height, x) {
    const bin = this.shown[this.pointed];
    return bin && svg("line", { class: "pointer", x1: x(bin.time), x2: x(bin.time), y1: EDGE.top, y2: height - EDGE.bottom });
  }

  /** The values at the pointer, or else the newest. */
  tell() {
    const bin = this.shown[this.pointed] ?? [...this.shown].reverse().find(Boolean);
    for (const name of CLASSES) say(this.values[name], bin ? rate(bin.of[name]) : "–");
    say(this.at, bin ? `a second, at ${clock(bin.time)}` : "a second");
  }

  /** @param {number} windowS */
  words(windowS) {
    const totals = this.shown.filter((bin) => bin !== null).map((bin) => bin.total);
    if (!totals.length) return "Pages a second: no figures yet.";
    const [now, high, low] = [totals[totals.length - 1], Math.max(...totals), Math.min(...totals)].map(rate);
    return `Pages a second in the last ${duration(windowS)}: now ${now}, at most ${high}, at least ${low}.`;
  }

  close() {
    this.observer.disconnect();
  }
}

/** The parts of a series without gaps. @param {Bin[]} shown @returns {NonNullable<Bin>[][]} */
function segments(shown) {
  /** @type {NonNullable<Bin>[][]} */
  const found = [[]];
  for (const bin of shown) {
    if (bin) found[found.length - 1].push(bin);
    else if (found[found.length - 1].length) found.push([]);
  }
  return found.filter((one) => one.length);
}

/**
 * A bar of parts, each with its number and its word below.
 * @param {string} label @param {{tone: string, count: number, words: string, href?: string}[]} parts
 */
export function bar(label, parts) {
  const some = parts.filter((part) => part.count > 0);
  const total = some.reduce((sum, part) => sum + part.count, 0);
  const said = some.map((part) => `${part.count.toLocaleString("en-GB")} ${part.words}`).join(", ") || "none";
  const pieces = some.map((part) => {
    const piece = h(`i.${part.tone}`);
    piece.style.setProperty("flex-grow", String(Math.max(part.count, total / 200)));
    return piece;
  });
  const keys = parts.map((part) => {
    const words = [h(`i.key.${part.tone}`), h("b", null, part.count.toLocaleString("en-GB")), ` ${part.words}`];
    return part.href ? h("a", { href: part.href }, words) : h("span", null, words);
  });
  return h("div", null, h("div.bar", { role: "img", "aria-label": `${label}: ${said}` }, pieces), h("p.legend", null, keys));
}

/** How much of a budget is used. @param {string} label @param {number} used @param {number} most */
export function gauge(label, used, most) {
  const share = most > 0 ? Math.min(1, used / most) : 0;
  const level = h(`i.${share >= 1 ? "refused" : "accent"}`);
  level.style.setProperty("width", `${(share * 100).toFixed(1)}%`);
  return h("div.bar.gauge", { role: "img", "aria-label": `${label}: ${Math.round(share * 100)} per cent used` }, level);
}
