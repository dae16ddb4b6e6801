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

/** Reads "10 GB", "500k", "2h", "90" as a number. @param {string} text @param {string} kind count, size or duration */
export function quantity(text, kind) {
  const match = /^\s*([0-9][0-9., ]*)\s*([a-z]*)\s*$/i.exec(text);
  if (!match) return null;
  const number = Number(match[1].replace(/[, ]/g, ""));
  const unit = match[2].toLowerCase();
  const many = UNITS[kind]?.[unit];
  return Number.isFinite(number) && many !== undefined ? number * many : null;
}

/** @type {Record<string, Record<string, number>>} */
const UNITS = {
  count: { "": 1, k: 1e3, m: 1e6 },
  size: { "": 1, b: 1, kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40 },
  duration: { "": 1, s: 1, m: 60, min: 60, h: 3600, d: 86400, day: 86400, days: 86400 },
};
