/** The story of one URL: where it was found, what was decided, each try, where its page lies, and the stored copy. */

import { CallError, api } from "../api.js";
import { card, empty, fill, h, hostLink, prose, renew, urlLink } from "../dom.js";
import { count, duration, moment } from "../format.js";
import { isOutcome, outcomeTag, toneOf } from "../outcomes.js";
import { showCopy } from "./copy.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {{what: string, told: string, time: number | null, node: string}} Step */

const EVERY_S = 3;
/** Steps whose time is when they happened; that of others is when they will. */
const PAST = new Set(["found", "dead"]);
const TONES = /** @type {Record<string, string>} */ ({
  leased: "ok", done: "ok", dead: "broken", retry: "refused", put_off: "refused", denied: "refused", waits: "idle", refused: "idle", store: "idle",
});
const STATES = /** @type {Record<string, [string, string]>} */ ({
  queued: ["Queued", "accent"], scheduled: ["To be tried again", "refused"], leased: ["With a node", "ok"], done: ["Done", "ok"],
  dead: ["Given up", "broken"], not_followed: ["Not followed", "idle"],
});

/** @param {HTMLElement} main @param {Context} context */
export function urlsScreen(main, context) {
  const url = context.query.url ?? "";
  const [body, copy] = [h("div"), h("div")];
  fill(main, h("header", null, h("h1", null, "URLs")), finder(url), body, copy);
  if (!url) {
    fill(body, empty("What happened to this URL?",
      "Paste an address. You will read where it was found, what was decided about it and why, each try, and where its page is stored."));
    return;
  }
  let copied = "";
  context.every(EVERY_S, async () => {
    try {
      const story = await api.url(url);
      renew(body, ...tell(story, url));
      // A copy is asked for once, and again when the page was fetched again, or tables begin to show it.
      const stored = story.fetches.find((/** @type {any} */ one) => one.page);
      const key = stored ? `${stored.crawl_time} ${stored.unshown}` : "";
      if (key && key !== copied) await showCopy(copy, context, story.url);
      copied = key;
    } catch (wrong) {
      if (!(wrong instanceof CallError) || wrong.status === 0) throw wrong;
      renew(body, empty("Nothing is known of it", prose(`${wrong.message} ${wrong.hint}`)));
    }
  });
}

/** @param {string} url */
function finder(url) {
  const box = /** @type {HTMLInputElement} */ (
    h("input", { id: "url", type: "text", inputmode: "url", value: url, placeholder: "https://example.org/page", autocomplete: "off", spellcheck: "false", required: true })
  );
  const form = h("form.finder.long", { role: "search" }, h("label.hidden", { for: "url" }, "A URL"), box, h("button", { type: "submit" }, "Look up"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = `#/urls?url=${encodeURIComponent(box.value.trim())}`;
  });
  if (!url) queueMicrotask(() => box.focus());
  return form;
}

/** @param {any} story @param {string} typed @returns {import("../dom.js").Child[]} */
function tell(story, typed) {
  const [words, tone] = STATES[story.state] ?? [story.state, "idle"];
  const tried = new Map(story.fetches.map((/** @type {any} */ one) => [one.crawl_time, one]));
  const rows = story.steps.map((/** @type {Step} */ step) => {
    const fetched = isOutcome(step.what) && step.time !== null ? tried.get(step.time) : null;
    if (fetched && !fetched.unshown) return attempt(fetched);
    // Its row is in no table yet: the sentence says where it is, and whether it counts.
    const tone = fetched ? toneOf(step.what) : TONES[step.what] ?? "";
    return entry(step.time !== null && (fetched || PAST.has(step.what)) ? moment(step.time) : "", tone, ...prose(step.told));
  });
  return [
    story.url === typed ? null : h("p.address", null, story.url),
    h("div.two", null, card("What happened", h(`span.pill.${tone}`, null, words), h("ol.story", null, rows)), card("Facts", null, facts(story))),
  ];
}

/** @param {string} time @param {string} tone @param {...import("../dom.js").Child} what */
const entry = (time, tone, ...what) => h(`li${tone ? `.${tone}` : ""}`, null, time ? h("time", null, time) : null, h("p", null, ...what));

/** One try, as a person would tell it. @param {any} one */
function attempt(one) {
  const failed = [one.kind, one.error].filter(Boolean).join(", ");
  const twin = one.duplicate_of && h("span", null, one.duplicate_kind === "exact" ? " The same content as " : " Nearly the same text as ", urlLink(one.duplicate_of), ".");
  const target = one.redirect_to && h("span", null, " To ", urlLink(one.redirect_to), ".");
  const place = one.warc_filename
    ? h("small", null, "Stored in ", h("code", null, `warc/${one.warc_filename}`), one.warc_record_offset === null ? "" : ` at byte ${count(one.warc_record_offset)}.`)
    : h("small", null, "Its row is in ", h("code", null, `tables/${one.page ? "pages" : "fetches"}/${one.segment}.parquet`), ".");
  return entry(moment(one.crawl_time), toneOf(one.outcome, one.status_code), outcomeTag(one), ` by ${one.node_id || "somebody"}${failed ? `: ${failed}` : ""}.`, target, twin, place);
}

/** @param {any} story */
function facts(story) {
  const rows = /** @type {[string, import("../dom.js").Child][]} */ ([
    ["Host", h("span", null, hostLink(story.host), story.host_state && h("small.why", null, story.host_state.why))],
    ["Found on", story.found_on ? urlLink(story.found_on) : null],
    ["Priority", story.priority],
    ["Depth", story.depth],
    ["Tries in vain", story.attempts || null],
    ["Next try", story.retry_at ? moment(story.retry_at) : null],
    ["With", story.lease_node ? `${story.lease_node}, until ${moment(story.lease_until)}` : null],
    ["Redirected from", story.redirects.length ? h("span", null, story.redirects.map((/** @type {string} */ url) => h("div", null, urlLink(url)))) : null],
    ["Last asked for", story.last_crawled ? `${moment(story.last_crawled)}, ${duration(Date.now() / 1000 - story.last_crawled)} ago` : null],
    ["Last error", story.dead_letter?.last_error ?? null],
  ]);
  const shown = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl.facts", null, shown.flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}
