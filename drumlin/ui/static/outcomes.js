/** What became of a try to fetch something, in a word with its colour. */

import { tag } from "./dom.js";

/** Words and tones. @type {Record<string, [string, string]>} */
const OUTCOMES = {
  fetched: ["Fetched", "ok"], not_modified: ["Unchanged", "ok"], redirected: ["Redirected", "moved"], denied: ["Denied", "refused"],
  robots: ["Rules asked for:", "ok"], skipped: ["Skipped", "idle"], failed: ["Failed", "broken"],
};

/** Whether a word is the outcome of a try. @param {string} word */
export const isOutcome = (word) => word in OUTCOMES;

/** @param {string} outcome @param {number} [status] */
export const toneOf = (outcome, status = 0) => (status >= 500 ? "broken" : (OUTCOMES[outcome] ?? ["", "idle"])[1]);

/** Such as "Fetched 200". @param {any} one */
export const outcomeTag = (one) =>
  tag(toneOf(one.outcome, one.status_code), `${OUTCOMES[one.outcome]?.[0] ?? one.outcome}${one.status_code ? ` ${one.status_code}` : ""}`);
