/** Numbers, sizes, durations and times for people. Nothing here touches the page. */

const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 1 });

/** @param {number} n */
export const count = (n) => whole.format(Math.round(n));

/** A rate: one decimal while it is small. @param {number} n */
export const rate = (n) => (n < 10 ? tenths.format(n) : whole.format(n));

/** @param {number} n @param {string} one @param {string} [many] */
export const counted = (n, one, many = `${one}s`) => `${count(n)} ${Math.round(n) === 1 ? one : many}`;

/** A large number in few characters: 6.1 M. @param {number} n */
export function short(n) {
  if (n < 100_000) return count(n);
  if (n < 1_000_000) return `${count(n / 1000)} k`;
  return n < 1e9 ? `${tenths.format(n / 1e6)} M` : `${tenths.format(n / 1e9)} G`;
}

/** @param {number} bytes */
export function size(bytes) {
  for (const [unit, many] of /** @type {[string, number][]} */ ([["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])) {
    if (bytes >= many) return `${bytes / many < 10 ? tenths.format(bytes / many) : whole.format(bytes / many)} ${unit}`;
  }
  return `${count(bytes)} B`;
}

/** Two units at most: 4.6 s, 3 min, 1 h 30 min, 2 days. @param {number} seconds */
export function duration(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10 && Math.round(s * 10) % 10) return `${tenths.format(s)} s`;
  if (s < 59.5) return `${Math.round(s)} s`;
  const minutes = Math.round(s / 60);
  if (s < 600 && Math.round(s) % 60) return `${Math.floor(Math.round(s) / 60)} min ${Math.round(s) % 60} s`;
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h${minutes % 60 ? ` ${minutes % 60} min` : ""}`;
  const hours = Math.round(minutes / 60);
  return `${counted(Math.floor(hours / 24), "day")}${hours % 24 ? ` ${hours % 24} h` : ""}`;
}

/** A time between two requests, which may be far below a second. @param {number} seconds */
export const gap = (seconds) => (seconds > 0 && seconds < 0.095 ? `${Math.round(seconds * 1000)} ms` : duration(seconds));

/** @param {number} part @param {number} of */
export function percent(part, of) {
  if (!of || !part) return "0 %";
  const share = (100 * part) / of;
  return share < 0.1 ? "< 0.1 %" : `${tenths.format(share)} %`;
}

/** The time of day. @param {number} seconds since the epoch */
export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour12: false });

/** The time of day, without seconds. @param {number} seconds since the epoch */
export const clockShort = (seconds) =>
  new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", hour12: false });

/** The day. @param {number} seconds since the epoch */
export const day = (seconds) => new Date(seconds * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" });

/** The time, with its day unless that is today. @param {number} seconds since the epoch */
export function moment(seconds) {
  const then = new Date(seconds * 1000);
  if (then.toDateString() === new Date().toDateString()) return clock(seconds);
  return `${then.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" })}, ${clock(seconds)}`;
}

/** A number, with or without commas or blanks between its thousands, and its unit. "2,5" is no such number: it would be read as 25. */
const PART = /([0-9]{1,3}(?:[, ][0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*/iy;

/**
 * Reads what people type, which includes what is shown to them: "10 GB", "500k", "90", "1h30m", "1 h 30 min".
 * @param {string} text @param {string} kind count, size or duration @returns {number | null} null if it means nothing
 */
export function quantity(text, kind) {
  const typed = text.trim();
  const parts = [];
  PART.lastIndex = 0;
  while (PART.lastIndex < typed.length) {
    const part = PART.exec(typed);
    if (!part) return null;
    parts.push({ number: Number(part[1].replace(/[, ]/g, "")), unit: part[2].toLowerCase() });
  }
  const without = parts.some((part) => !part.unit);
  if (!parts.length || (without && parts.length > 1)) return null;
  const read = parts.reduce((sum, { number, unit }) => sum + number * (UNITS[kind]?.[unit] ?? NaN), 0);
  return Number.isFinite(read) ? read : null;
}

/** As the coordinator reads them, with the words in which amounts are shown. @type {Record<string, Record<string, number>>} */
const UNITS = {
  count: { "": 1, k: 1e3, m: 1e6 },
  size: { "": 1, b: 1, k: 1e3, kb: 1e3, kib: 2 ** 10, m: 1e6, mb: 1e6, mib: 2 ** 20, g: 1e9, gb: 1e9, gib: 2 ** 30, t: 1e12, tb: 1e12, tib: 2 ** 40 },
  duration: { "": 1, ms: 0.001, s: 1, m: 60, min: 60, h: 3600, d: 86400, day: 86400, days: 86400, w: 604800 },
};
