/** Bars for an answer that has labels and numbers, and columns for one that has moments and numbers. */

import { h, svg } from "./dom.js";
import { clock, clockShort, count, day, percent, rate } from "./format.js";

/** @typedef {import("./dom.js").Child} Child */
/** @typedef {{label: Child, value: number, small?: Child}} Bar */

const HEIGHT = 180;
const EDGE = { left: 48, right: 8, top: 10, bottom: 22 };

/** A number as a table shows it: whole, or with what matters behind the point. @param {number} value */
const numeral = (value) => (Number.isInteger(value) ? count(value) : Math.abs(value) < 1 ? String(Number(value.toPrecision(3))) : rate(value));

/**
 * A list of labels, each with a bar as long as its number. Screen readers get it as a table.
 * @param {string} title what the labels are @param {string} of what the numbers count @param {Bar[]} rows
 * @param {{shares?: boolean, show?: (n: number) => string}} [options] with `shares`, each row says its part of the whole
 */
export function bars(title, of, rows, { shares = false, show = numeral } = {}) {
  const most = Math.max(...rows.map((row) => row.value), 0);
  const total = rows.reduce((sum, row) => sum + row.value, 0);
  const head = h("tr", null, h("th", { scope: "col" }, title), h("th.wide", { scope: "col" }, h("span.hidden", null, "Bar")),
    h("th.n", { scope: "col" }, of), shares && h("th.n.share", { scope: "col" }, "Share"));
  const body = rows.map(({ label, value, small }) => h("tr", null,
    h("td.label", null, label, small && h("small.why", null, small), lengthOf(value, most, "narrow")), h("td.wide.length", null, lengthOf(value, most)),
    h("td.n", null, show(value)), shares && h("td.n.share", null, percent(value, total))));
  return h("table.bars", { "aria-label": `${title}, ${of}` }, h("thead", null, head), h("tbody", null, body));
}

/** A bar of the length of a number. @param {number} value @param {number} most @param {string} [kind] `narrow` is shown on phones only */
export function lengthOf(value, most, kind = "") {
  const level = h("i.accent");
  level.style.setProperty("width", `${most > 0 ? Math.max(value > 0 ? 0.6 : 0, (100 * value) / most).toFixed(1) : 0}%`);
  return h(`span.length${kind ? `.${kind}` : ""}`, { "aria-hidden": "true" }, level);
}

/**
 * A column for each moment. It is drawn at the width that it has.
 * @param {string} label @param {{time: number, value: number}[]} points
 */
export function columns(label, points) {
  const node = h("div.plot");
  const draw = () => node.replaceChildren(drawing(label, points, Math.max(240, node.clientWidth)));
  const observer = new ResizeObserver(draw);
  observer.observe(node);
  return { node, close: () => observer.disconnect() };
}

/** @param {string} label @param {{time: number, value: number}[]} points @param {number} width */
function drawing(label, points, width) {
  const top = Math.max(...points.map((point) => point.value), 1);
  const [first, last] = [points[0].time, points[points.length - 1].time];
  const step = points.slice(1).reduce((least, point, at) => Math.min(least, point.time - points[at].time || least), last - first || 1);
  const room = width - EDGE.left - EDGE.right;
  const many = Math.max(1, Math.round((last - first) / step) + 1);
  const each = room / many;
  const x = (/** @type {number} */ time) => EDGE.left + ((time - first) / step) * each;
  const y = (/** @type {number} */ value) => HEIGHT - EDGE.bottom - (value / top) * (HEIGHT - EDGE.top - EDGE.bottom);
  const lines = [0, top / 2, top].flatMap((value) => [
    svg("line", { class: value ? "grid" : "axis", x1: EDGE.left, x2: width - EDGE.right, y1: y(value), y2: y(value) }),
    svg("text", { x: EDGE.left - 8, y: y(value) + 4, "text-anchor": "end" }, numeral(value)),
  ]);
  const shown = points.map((point) => svg("rect", { class: "column", x: x(point.time), width: Math.max(1, each - (each > 4 ? 1 : 0)), y: y(point.value), height: y(0) - y(point.value) },
    svg("title", {}, `${moment(point.time, step)}: ${numeral(point.value)}`)));
  const ends = [svg("text", { x: EDGE.left, y: HEIGHT - 5 }, moment(first, step)),
    many > 1 && svg("text", { x: width - EDGE.right, y: HEIGHT - 5, "text-anchor": "end" }, moment(last, step))];
  const said = `${label}: ${count(points.length)} columns, at most ${numeral(top)}.`;
  return svg("svg", { class: "chart", role: "img", "aria-label": said, viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT }, lines, shown, ends);
}

/** @param {number} time @param {number} step */
const moment = (time, step) => (step >= 86_400 ? day(time) : step >= 60 ? clockShort(time) : clock(time));
