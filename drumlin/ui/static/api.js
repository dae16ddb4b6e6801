/** The calls of the coordinator. All addresses are relative, so the page also works behind a prefix. */

/**
 * @typedef {{code: string, message: string, hint: string, since?: number}} Trouble
 * @typedef {{known: number, pending: number, queued: number, scheduled: number, leased: number, done: number, dead: number,
 *   hosts_ready: number, hosts_waiting: number, hosts_leased: number, hosts_in_backoff: number, next_event: number | null}} Totals
 * @typedef {{time: number, state: string, totals: Totals, pages: number, bytes: number, pages_per_s: number, bytes_per_s: number,
 *   in_flight: number, unanswered: number, lag_s: number, nodes: Record<string, number>, statuses: Record<string, number>,
 *   outcomes: Record<string, number>, retries: Record<string, number>, dead_letters: Record<string, number>,
 *   duplicates: Record<string, number>, refused: Record<string, number>, troubles: Trouble[],
 *   stopped: boolean}} Stats
 * @typedef {{pages_max: number | null, bytes_max: number | null, time_max_s: number | null, pages: number, bytes: number,
 *   elapsed_s: number}} Budgets
 * @typedef {{state: string, stop_reason: string, seeds: number, budgets: Budgets, totals: Totals, complete: boolean}} Crawl
 * @typedef {{code: string, message: string}} Reason
 * @typedef {{idle: boolean, reasons: Reason[], bound_by: Reason[]}} Why
 * @typedef {{role: string | null, log_in: string, expires: number | null, crawl: string, hosts: string[], seeds: number, running: boolean}} Session
 */

/** A call that was refused or could not be made; `status` is 0 if there was no answer. */
export class CallError extends Error {
  /** @param {number} status @param {string} code @param {string} message @param {string} hint */
  constructor(status, code, message, hint) {
    super(message);
    this.status = status;
    this.code = code;
    this.hint = hint;
  }
}

const PAGE_HEADER = "X-Drumlin-Page";
const WAITS_MS = 15_000;
/** A question in SQL may take longer. */
const ANSWERS_MS = 40_000;

/** Called when a session has ended, with the reason. @type {(error: CallError) => void} */
let onSessionEnd = () => {};

/** @param {(error: CallError) => void} listener */
export function whenSessionEnds(listener) {
  onSessionEnd = listener;
}

/**
 * @param {string} method @param {string} path relative to the page
 * @param {any} [message] @param {AbortSignal} [signal] @returns {Promise<any>}
 */
async function call(method, path, message, signal = AbortSignal.timeout(WAITS_MS)) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json", [PAGE_HEADER]: "1" };
  if (message !== undefined) headers["Content-Type"] = "application/json";
  const body = message === undefined ? undefined : JSON.stringify(message);
  let response;
  try {
    response = await fetch(path, { method, headers, body, signal });
  } catch {
    throw new CallError(0, "unreachable", "The coordinator does not answer.", "");
  }
  if (response.ok) return response.status === 204 ? null : response.json();
  const error = await read(response);
  if (error.status === 401 && path !== "session") onSessionEnd(error);
  throw error;
}

/** @param {Response} response */
async function read(response) {
  const told = await response.json().catch(() => ({}));
  const { code = "unknown", message = `The coordinator answered ${response.status}.`, hint = "" } = told.error ?? {};
  return new CallError(response.status, code, message, hint);
}

/** @param {Record<string, string | number>} fields */
const query = (fields) => {
  const given = Object.entries(fields).filter(([, value]) => value !== "").map(([name, value]) => [name, String(value)]);
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

const API = "api/v1";
export const EVENTS = `${API}/events`;

export const session = {
  get: () => call("GET", "session"),
  /** @param {{token?: string, code?: string}} proof */
  open: (proof) => call("POST", "session", proof),
  end: () => call("DELETE", "session"),
};

export const api = {
  crawl: () => call("GET", `${API}/crawl`),
  why: () => call("GET", `${API}/why-idle`),
  /** @param {string} span hour, day or month */
  history: (span) => call("GET", `${API}/history${query({ span })}`),
  settings: () => call("GET", `${API}/settings`),
  /** @param {string} state @param {number} limit */
  hosts: (state, limit) => call("GET", `${API}/hosts${query({ state, limit })}`),
  /** All hosts by name. @param {{prefix: string, after: string, limit: number}} of */
  hostsByName: (of) => call("GET", `${API}/hosts${query({ state: "all", ...of })}`),
  /** @param {string} host */
  host: (host) => call("GET", `${API}/hosts/${encodeURIComponent(host)}`),
  /** @param {string} host @param {object} change */
  changeHost: (host, change) => call("PATCH", `${API}/hosts/${encodeURIComponent(host)}`, change),
  /** @param {string} url */
  url: (url) => call("GET", `${API}/urls${query({ url })}`),
  /** @param {{status?: string, prefix?: string, limit: number}} of */
  nodes: (of) => call("GET", `${API}/nodes${query(of)}`),
  /** @param {string} node @param {string} order drain, quarantine or release */
  order: (node, order) => call("POST", `${API}/nodes/${encodeURIComponent(node)}/${order}`),
  groups: () => call("GET", `${API}/dead-letters/groups`),
  /** @param {{kind: string, after: string, limit: number}} of */
  groupsByHost: (of) => call("GET", `${API}/dead-letters/groups${query({ by: "host", ...of })}`),
  /** @param {{kind?: string, host?: string, after: string, limit: number}} of */
  letters: (of) => call("GET", `${API}/dead-letters${query(of)}`),
  /** @param {string} verb retry or drop @param {object} selection */
  changeLetters: (verb, selection) => call("POST", `${API}/dead-letters/${verb}`, selection),
  /** @param {string} verb pause, resume or stop */
  steer: (verb) => call("POST", `${API}/crawl/${verb}`),
  /** @param {object} change */
  changeCrawl: (change) => call("PATCH", `${API}/crawl`, change),
  /** @param {number} limit @param {number} before */
  audit: (limit, before) => call("GET", `${API}/audit${query({ limit, before })}`),
  content: () => call("GET", `${API}/content`),
  questions: () => call("GET", `${API}/sql`),
  /** @param {string} sql @param {number} rows_max @param {AbortSignal} [signal] */
  ask: (sql, rows_max, signal) => call("POST", `${API}/sql`, { sql, rows_max }, either(signal)),
  /** @param {string} url */
  capture: (url) => call("GET", `${API}/captures${query({ url })}`),
};

/** Whichever comes first: that somebody stops it, or that it takes too long. @param {AbortSignal} [signal] */
const either = (signal) => (signal ? AbortSignal.any([signal, AbortSignal.timeout(ANSWERS_MS)]) : AbortSignal.timeout(ANSWERS_MS));

/** Where the body of a stored page is. @param {string} url @param {string} form shown or file */
export const bodyOf = (url, form) => `${API}/captures/body${query({ url, form })}`;
