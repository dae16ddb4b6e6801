/** An answer to SQL, as people and programs read it: a table, a chart if it has labels and numbers, CSV and JSON. */

import { columns, lengthOf } from "./bars.js";
import { h, hostLink, urlLink } from "./dom.js";

/** @typedef {{columns: string[], types: string[], rows: any[][], complete: boolean, seconds: number}} Answer */
/** @typedef {import("./dom.js").Child} Child */

const CELL_CHARS = 400;
const POINTS_MIN = 2;
const GROUPED_FROM = 10_000;
const DECIMALS_MAX = 3;
const NUMBERS = /^(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|UTINYINT|USMALLINT|UINTEGER|UBIGINT|UHUGEINT|FLOAT|DOUBLE|DECIMAL)/;
const MOMENTS = /^(TIMESTAMP|DATE$)/;
const TEXTS = /^(VARCHAR|ENUM|BOOLEAN|UUID)/;
const HOSTS = /^(host|url_host_name)$/;
/** Numbers that are names. */
const NAMES = /(port|status|year|offset|id)$/;
const WEB = /^https?:\/\/[^\s]+$/;

/** @param {Answer} answer @param {number} at */
const isNumber = (answer, at) => NUMBERS.test(answer.types[at] ?? "");

/**
 * The answer as a table; a number that follows labels has a bar beside it.
 * @param {Answer} answer @param {number} shown how many rows
 */
export function answerTable(answer, shown) {
  const kinds = answer.columns.map((_, at) => (isNumber(answer, at) ? ".n" : ""));
  const numerals = answer.columns.map((_, at) => (isNumber(answer, at) ? numeralsOf(answer.rows.map((row) => row[at]), !NAMES.test(answer.columns[at])) : String));
  const drawn = numberAfterLabels(answer);
  const most = drawn < 0 ? 0 : Math.max(...answer.rows.map((row) => row[drawn] ?? 0));
  const head = h("tr", null, answer.columns.flatMap((name, at) => [
    at === drawn && h("th.wide", { scope: "col" }, h("span.hidden", null, "Bar")), h(`th${kinds[at]}`, { scope: "col", title: answer.types[at] }, name)]));
  const body = answer.rows.slice(0, shown).map((row) => h("tr", null, row.flatMap((value, at) => [
    at === drawn && h("td.wide.length", null, lengthOf(value ?? 0, most)),
    h(`td${kinds[at]}`, null, value === null ? NONE() : isNumber(answer, at) ? numerals[at](value) : cell(value, answer, at), at === 0 && drawn > 0 && lengthOf(row[drawn] ?? 0, most, "narrow"))])));
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": "The answer" }, h(`table.answer${drawn > 0 ? ".bars" : ""}`, { "aria-label": "The answer" }, h("thead", null, head), h("tbody", null, body)));
}

const NONE = () => h("span.none", { title: "NULL" }, "–");

/**
 * How the numbers of one column are written: all alike.
 * @param {any[]} values @param {boolean} counts whether they count something, rather than name it @returns {(value: any) => string}
 */
function numeralsOf(values, counts) {
  const numbers = values.filter((value) => typeof value === "number");
  const decimals = Math.max(0, ...numbers.map((value) => (Number.isInteger(value) ? 0 : Math.min(DECIMALS_MAX, String(Number(value.toFixed(DECIMALS_MAX))).split(".")[1]?.length ?? 0))));
  const form = new Intl.NumberFormat("en-GB", { minimumFractionDigits: decimals, maximumFractionDigits: decimals, useGrouping: counts && numbers.some((value) => Math.abs(value) >= GROUPED_FROM) });
  return (value) => (typeof value === "number" ? form.format(value) : String(value));
}

/** A value; what is a URL or a host leads to it. @param {any} value @param {Answer} answer @param {number} at @returns {Child} */
function cell(value, answer, at) {
  if (MOMENTS.test(answer.types[at])) return h("span.moment", null, String(value).replace("T", " ").replace(/(\.\d+)?(Z|\+00:00)?$/, ""));
  const text = typeof value === "string" ? value : JSON.stringify(value);
  if (WEB.test(text)) return urlLink(text, cut(text));
  if (HOSTS.test(answer.columns[at]) && text) return hostLink(text);
  return h("span.value", null, cut(text));
}

/** @param {string} text */
const cut = (text) => (text.length > CELL_CHARS ? `${text.slice(0, CELL_CHARS)}…` : text);

/** The place of the number in an answer that begins with one or two labels and a number; -1 in any other. @param {Answer} answer */
function numberAfterLabels(answer) {
  const at = answer.types.findIndex((type, place) => place > 0 && NUMBERS.test(type));
  const labels = answer.types.slice(0, at);
  const labelled = labels.every((type) => TEXTS.test(type)) || (at === 1 && isNumber(answer, 0) && answer.types.length === 2);
  const fits = answer.rows.length >= POINTS_MIN && (at === 1 || at === 2) && labelled;
  return fits && answer.rows.every((row) => row[at] === null || (typeof row[at] === "number" && row[at] >= 0)) ? at : -1;
}

/** A chart of an answer that begins with a moment and a number; null of any other. @param {Answer} answer */
export function answerChart(answer) {
  const drawn = answer.rows.length >= POINTS_MIN && MOMENTS.test(answer.types[0]) && answer.types.length > 1 && isNumber(answer, 1);
  return drawn && answer.rows.every((row) => typeof row[1] === "number" && row[1] >= 0) ? timeline(answer, 1) : null;
}

/** @param {Answer} answer @param {number} number */
function timeline(answer, number) {
  const points = answer.rows.map((row) => ({ time: Date.parse(row[0]) / 1000, value: row[number] })).sort((a, b) => a.time - b.time);
  return points.some((point) => Number.isNaN(point.time)) ? null : columns(answer.columns[number], points);
}

/** The answer as CSV. @param {Answer} answer */
export function csv(answer) {
  const field = (/** @type {any} */ value) => {
    const text = value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [answer.columns, ...answer.rows].map((row) => `${row.map(field).join(",")}\n`).join("");
}

/** The answer as JSON: a list of objects, as `drumlin query --json` gives it. @param {Answer} answer */
export const json = (answer) =>
  `${JSON.stringify(answer.rows.map((row) => Object.fromEntries(answer.columns.map((name, at) => [name, row[at]]))), null, 1)}\n`;
