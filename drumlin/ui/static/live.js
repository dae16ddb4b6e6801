/**
 * What happens now: the coordinator's stream of events, kept up by itself, and the series of rates that is made of it.
 *
 * Listeners hear `stats` (new figures), `mark` (something to mark in a chart), `link` (the connection came, went, or has
 * ended for good), and `lost` (it went, or could not be made again).
 */

import { EVENTS } from "./api.js";

/** @typedef {import("./api.js").Stats} Stats */
/** @typedef {{from: number, time: number, ok: number, moved: number, refused: number, broken: number}} Point rates a second between two moments */
/** @typedef {{time: number, text: string}} Mark */

export const CLASSES = /** @type {const} */ (["ok", "moved", "refused", "broken"]);
const KEPT_S = 3600;
const MARKS_MAX = 50;
const AGAIN_MS = [1000, 2000, 4000, 8000];
/** Events come every second; after a silence this long the connection counts as gone. */
const SILENT_MS = 8000;
/** Two looks further apart than this many steps have a gap between them. */
const GAP_STEPS = 3;

/** How many answers of each class there were, from the totals by status. @param {Stats} stats */
export function answers(stats) {
  const of = { ok: 0, moved: 0, refused: 0, broken: 0 };
  let failedWithStatus = 0;
  for (const [status, count] of Object.entries(stats.statuses)) {
    const first = status[0];
    if (first === "2") of.ok += count;
    else if (first === "3") of.moved += count;
    else if (first === "4") of.refused += count;
    else of.broken += count;
    if (first === "5" || status === "429") failedWithStatus += count;
  }
  of.broken += Math.max(0, (stats.outcomes.failed ?? 0) - failedWithStatus);
  return of;
}

/**
 * The rates between two samples; null if they are too far apart to say.
 * @param {number[]} before `[time, pages, bytes, ok, moved, refused, broken]` @param {number[]} after @param {number} stepS
 * @returns {Point | null}
 */
function pointOf(before, after, stepS) {
  const passed = after[0] - before[0];
  if (passed <= 0 || passed > GAP_STEPS * stepS + 2) return null;
  const [ok, moved, refused, broken] = [3, 4, 5, 6].map((at) => Math.max(0, after[at] - before[at]) / passed);
  return { from: before[0], time: after[0], ok, moved, refused, broken };
}

/** The rates in a series of samples. @param {{step_s: number, samples: number[][]}} history @returns {Point[]} */
export function pointsOf({ step_s, samples }) {
  return samples.slice(1).flatMap((after, at) => pointOf(samples[at], after, step_s) ?? []);
}

/** @param {Stats} stats */
function sampleOf(stats) {
  const of = answers(stats);
  return [stats.time, stats.pages, stats.bytes, of.ok, of.moved, of.refused, of.broken];
}

export class Live extends EventTarget {
  constructor() {
    super();
    /** @type {Stats | null} */
    this.stats = null;
    /** @type {Point[]} */
    this.points = [];
    /** @type {Mark[]} */
    this.marks = [];
    /** Whether it is known what was before this page. */
    this.remembers = false;
    /** `starting`, `live`, `lost` or `ended` */
    this.link = "starting";
    /** When the last figures came, by this browser's clock. */
    this.heard = 0;
    /** @type {EventSource | null} */
    this.source = null;
    this.tries = 0;
    this.timer = 0;
    /** The first sample since the connection came. @type {number[]} */
    this.first = [];
  }

  start() {
    this.stop();
    const source = (this.source = new EventSource(EVENTS));
    source.addEventListener("stats", (event) => this.take(JSON.parse(event.data)));
    source.addEventListener("mark", (event) => this.mark(JSON.parse(event.data)));
    source.addEventListener("trouble", (event) => this.trouble(JSON.parse(event.data)));
    source.addEventListener("end", () => this.ended());
    source.addEventListener("error", () => this.lost());
    this.await();
  }

  stop() {
    this.source?.close();
    this.source = null;
    clearTimeout(this.timer);
  }

  /** Whether the coordinator ends with its crawl, so its silence is no trouble. */
  endsWithCrawl = false;

  ended() {
    if (!this.endsWithCrawl) return;
    this.stop();
    this.connect("ended");
  }

  lost() {
    if (this.link === "ended") return;
    this.stop();
    this.connect("lost");
    this.tell("lost");
    this.timer = window.setTimeout(() => this.start(), AGAIN_MS[Math.min(this.tries, AGAIN_MS.length - 1)]);
    this.tries += 1;
  }

  /** Give up on a stream that has gone silent. */
  await() {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.lost(), SILENT_MS);
  }

  /** @param {string} link */
  connect(link) {
    if (this.link === link) return;
    this.link = link;
    this.tell("link");
  }

  /** @param {Stats} stats */
  take(stats) {
    this.await();
    this.tries = 0;
    this.heard = Date.now() / 1000;
    const before = this.stats;
    this.stats = stats;
    if (before && stats.time > before.time) this.add(before, stats);
    if (this.link !== "live") this.first = sampleOf(stats);
    this.connect("live");
    this.tell("stats");
  }

  /** @param {Stats} before @param {Stats} stats */
  add(before, stats) {
    const point = pointOf(sampleOf(before), sampleOf(stats), 1);
    if (point) this.points.push(point);
    while (this.points.length && this.points[0].time < stats.time - KEPT_S) this.points.shift();
  }

  /**
   * Takes from the coordinator what was before this page, or while it had no connection.
   * @param {{step_s: number, samples: number[][], marks: Mark[]}} history
   */
  remember({ step_s, samples, marks }) {
    const since = this.first[0];
    const before = [...samples.filter((sample) => sample[0] < since), this.first];
    this.points = [...pointsOf({ step_s, samples: before }), ...this.points.filter((point) => point.from >= since)];
    const known = new Set(marks.map((mark) => `${mark.time} ${mark.text}`));
    this.marks = [...marks, ...this.marks.filter((mark) => !known.has(`${mark.time} ${mark.text}`))];
    this.remembers = true;
    this.tell("mark");
  }

  /** @param {import("./api.js").Trouble} trouble */
  trouble(trouble) {
    this.await();
    if (this.stats) this.stats = { ...this.stats, troubles: [trouble] };
    this.tell("stats");
  }

  /** @param {Mark} mark */
  mark(mark) {
    if (this.marks.some((known) => known.time === mark.time && known.text === mark.text)) return;
    this.marks.push(mark);
    this.marks.splice(0, this.marks.length - MARKS_MAX);
    this.tell("mark");
  }

  /** @param {string} name */
  tell(name) {
    this.dispatchEvent(new Event(name));
  }
}
