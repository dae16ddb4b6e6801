/** How things are: one sentence, a few large figures, what happened lately, and where to look next. */

import { api } from "../api.js";
import { RatesChart, bar, gauge } from "../chart.js";
import { ask } from "../dialog.js";
import { card, empty, fill, h, hostLink, prose, renew, say, table } from "../dom.js";
import { pointsOf } from "../live.js";
import { clock, count, counted, duration, gap, percent, rate, short, size } from "../format.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {import("../api.js").Stats} Stats */
/** @typedef {import("../api.js").Why} Why */
/** @typedef {import("../api.js").Crawl} Crawl */
/** @typedef {{points: import("../live.js").Point[], marks: import("../live.js").Mark[]}} Past */

const WHY_EVERY_S = 2;
const LISTS_EVERY_S = 4;
const HOSTS_SHOWN = 6;
const HOSTS_ASKED = 50;
const FAILURES_SHOWN = 6;
const MARKS_TOLD = 3;
const HOUR_S = 3600;
const SPANS = /** @type {Record<string, string>} */ ({ hour: "Hour", day: "Day", month: "Month" });

/** A few words for each code of `why-idle`; the sentence follows. Sentences of other codes begin with such words themselves. @type {Record<string, string>} */
const LEADS = {
  nothing_queued: "Nothing left to do.", all_scheduled: "Waiting to try again.", all_given: "Nearly done.",
  no_nodes: "No node.", no_active_nodes: "No node at work.", backoff: "Hosts out of reach.", all_leased: "Waiting for hosts.",
  all_waiting: "Waiting for hosts.", blocked: "Hosts blocked.", budgeted: "Budgets of hosts.", slowed: "Slowed down.",
  between: "Between two pages.", not_running: "Not running.", silent_nodes: "Nodes are silent.",
};
const STATES = /** @type {Record<string, string>} */ ({ running: "Running", paused: "Paused", draining: "Stopping", stopped: "Stopped", finished: "Finished" });

/** @param {HTMLElement} main @param {Context} context */
export function overviewScreen(main, context) {
  const parts = {
    pill: h("span.pill"), time: h("span.soft"), actions: h("div.actions"), why: h("p.why"), figures: figures(),
    marks: h("p.told"), hosts: h("div"), failures: h("div"), budgets: h("div.budgets"), spans: h("div.tabs"),
  };
  const span = context.query.span in SPANS ? context.query.span : "hour";
  const chart = new RatesChart();
  context.leaving(() => chart.close());
  fill(main,
    h("header", null, h("h1", null, context.name), parts.pill, parts.time, parts.actions),
    parts.why, parts.figures.node,
    card("Pages a second, by answer", chart.legend, chart.node, h("div.under", null, parts.marks, parts.spans)),
    h("div.two", null, parts.hosts, parts.failures), parts.budgets);
  /** @type {Past | null} the last day or month, if that is wanted in place of the last hour */
  let past = null;
  /** @type {{crawl: Crawl, hosts: any[], groups: any} | null} */
  let lists = null;
  const draw = () => {
    const { stats, points, marks, remembers } = context.live;
    if (!stats) return;
    if (lists) {
      renew(parts.hosts, hosts(stats, lists.hosts));
      renew(parts.failures, failures(stats, lists.groups.groups));
      renew(parts.budgets, budgetsCard({ ...lists.crawl.budgets, pages: stats.pages, bytes: stats.bytes }));
    }
    tellState(parts, stats, context);
    parts.figures.tell(stats, lists?.crawl.budgets.elapsed_s ?? 0);
    chart.draw(past?.points ?? points, past?.marks ?? marks, stats.time, past !== null || remembers);
    renew(parts.marks, marks.slice(-MARKS_TOLD).reverse().map((mark) => h("span", null, h("time", null, clock(mark.time)), ` ${mark.text}`)));
  };
  context.on("stats", draw);
  context.on("mark", draw);
  context.on("link", () => context.live.link === "ended" && tellEnd(parts, context.live.stats));
  draw();
  context.every(WHY_EVERY_S, async () => renew(parts.why, ...sentence(await api.why(), context.live.stats)));
  context.every(LISTS_EVERY_S, async () => {
    const [crawl, groups, ...found] = await Promise.all([
      api.crawl(), api.groups(), ...["leased", "ready", "waiting"].map((state) => api.hosts(state, HOSTS_ASKED)),
    ]);
    past = await lookBack(span);
    if (crawl.budgets.elapsed_s > HOUR_S) renew(parts.spans, spans(span));
    say(parts.time, crawl.budgets.elapsed_s ? duration(crawl.budgets.elapsed_s) : "");
    lists = { crawl, hosts: found.flatMap((one) => one.hosts), groups };
    draw();
  });
}

/** @param {string} span @returns {Promise<Past | null>} */
async function lookBack(span) {
  if (span === "hour") return null;
  const history = await api.history(span);
  return { points: pointsOf(history), marks: history.marks };
}

/** @param {string} span */
const spans = (span) => Object.entries(SPANS).map(([name, words]) =>
  h("a", { href: `#/?span=${name}`, "aria-current": name === span ? "true" : null }, words));

/** @param {any} parts @param {Stats} stats @param {Context} context */
function tellState(parts, stats, context) {
  const stands = !context.session.running && stats.state !== "finished";
  const state = stats.stopped ? "stopped" : stats.state;
  if (parts.pill.dataset.state === state) return;
  parts.pill.dataset.state = state;
  parts.pill.className = `pill ${stands ? "idle" : state}`;
  say(parts.pill, stands ? "Not running" : (STATES[state] ?? state));
  fill(parts.actions, context.operates ? levers(state, context) : null);
}

/** What is true of a run that has ended. @param {any} parts @param {Stats | null} stats */
function tellEnd(parts, stats) {
  const left = stats?.totals.pending ?? 0;
  const finished = stats?.state === "finished";
  say(parts.pill, finished ? "Finished" : "Ended");
  fill(parts.actions);
  fill(parts.why, h("strong", null, finished ? "Finished." : "Ended."),
    left ? ` ${counted(left, "URL")} ${left === 1 ? "is" : "are"} left.` : " Nothing is left to fetch.");
}

/** @param {string} state @param {Context} context */
function levers(state, context) {
  const pause = () => ask({
    title: "Pause the crawl?", verb: "Pause",
    text: `${counted(context.live.stats?.in_flight ?? 0, "request")} under way will be finished; then no site is asked until you resume.`,
    act: async () => `The crawl is ${(await api.steer("pause")).status}.`,
  });
  const resume = () => ask({
    title: "Go on?", verb: "Resume", text: `${counted(context.live.stats?.totals.pending ?? 0, "URL")} wait to be fetched.`,
    act: async () => `The crawl is ${(await api.steer("resume")).status}.`,
  });
  const stop = () => ask({
    title: "Stop the crawl?", verb: "Stop", danger: true,
    text: `Requests under way are finished, ${counted(context.live.stats?.totals.pending ?? 0, "URL")} stay in the queue, and the nodes leave. It can go on later.`,
    act: async () => `The crawl is ${(await api.steer("stop")).status}.`,
  });
  const button = (/** @type {string} */ text, /** @type {() => void} */ onclick) => h("button", { onclick }, text);
  if (state === "running") return [button("Pause", pause), button("Stop…", stop)];
  if (state === "paused") return [button("Resume", resume), button("Stop…", stop)];
  // A crawl on one machine ends its processes with it, so there is nobody to resume.
  return context.session.log_in === "token" ? [button("Resume", resume)] : [];
}

/** @param {Why} why @param {Stats | null} stats @returns {Node[]} */
function sentence(why, stats) {
  const named = stats?.troubles.map((one) => one.code) ?? [];
  const all = why.idle ? why.reasons : why.bound_by;
  const [first, ...others] = all.filter((one) => !named.includes(one.code));
  // The banner above every screen has told it already.
  if (!first && why.idle && all.length) return [h("strong.broken", null, "Trouble."), document.createTextNode(" It is told above.")];
  if (!first) {
    const ready = stats?.totals.hosts_ready ?? 0;
    const said = ready ? ` ${counted(ready, "host")} could be asked and no node has asked for ${ready === 1 ? "it" : "them"} yet: the nodes set the pace.` : "";
    return [h("strong", null, "Fetching."), document.createTextNode(said)];
  }
  const trouble = /^(engine|store)_/.test(first.code);
  const [lead, told] = trouble ? ["Trouble.", first.message] : why.idle ? reason(first) : bound(first.message);
  const link = first.code === "politeness" && h("a", { href: "#/hosts?state=leased" }, "Which hosts");
  const more = others.map((one) => h("span.more", null, ...prose(one.message)));
  return [h(`strong${trouble ? ".broken" : ""}`, null, lead), document.createTextNode(" "), ...prose(told), link ? h("span", null, " ", link) : "", ...more].map(
    (one) => (one instanceof Node ? one : document.createTextNode(one)));
}

/** Why nothing is fetched: a lead, and the rest. @param {{code: string, message: string}} first @returns {[string, string]} */
function reason(first) {
  if (first.code in LEADS) return [LEADS[first.code], first.message];
  const [, lead, told] = /^(.+?[.;])(?:\s+(.*))?$/s.exec(first.message) ?? [];
  return lead ? [lead, told ?? ""] : ["", first.message];
}

/** What bounds a crawl that fetches begins with a name for it, which becomes the lead. @param {string} message @returns {[string, string]} */
function bound(message) {
  const [, name, told] = /^([^:]+): (.+)$/s.exec(message) ?? [];
  if (!told) return ["", message];
  return [`Bound by ${name === name.toUpperCase() ? name : name.toLowerCase()}.`, told[0].toUpperCase() + told.slice(1)];
}

/** The large figures. */
function figures() {
  const items = ["Pages", "Pages a second", "Received", "Duplicates", "Failures"].map((name) => {
    const [value, small] = [h("span"), h("small")];
    return { value, small, node: h("div", null, h("dt", null, name), h("dd", null, value, small)) };
  });
  /** A finished crawl has no speed now: then the mean is told.
   * @param {Stats} stats @param {number} elapsedS */
  const tell = (stats, elapsedS) => {
    const over = stats.state === "finished" && elapsedS > 0;
    const { totals, duplicates } = stats;
    const both = (duplicates.exact ?? 0) + (duplicates.near ?? 0);
    const failed = stats.outcomes.failed ?? 0;
    const asked = Object.values(stats.outcomes).reduce((sum, one) => sum + one, 0);
    const rows = [
      [count(stats.pages), `of ${counted(totals.known, "known URL")}`],
      over ? [rate(stats.pages / elapsedS), "over the whole crawl"] : [rate(stats.pages_per_s), `${counted(stats.in_flight, "request")} under way`],
      [size(stats.bytes), `${size(over ? stats.bytes / elapsedS : stats.bytes_per_s)}/s`],
      [percent(both, stats.pages), both ? `${short(duplicates.exact ?? 0)} exact, ${short(duplicates.near ?? 0)} near` : "none found"],
      [percent(failed, asked), totals.dead ? `${counted(totals.dead, "URL")} given up` : "no URL given up"],
    ];
    rows.forEach(([value, small], at) => {
      say(items[at].value, value);
      say(items[at].small, small);
    });
  };
  return { node: h("dl.figures", null, items.map((one) => one.node)), tell };
}

/** @param {Stats | null} stats @param {any[]} found */
function hosts(stats, found) {
  const totals = stats?.totals;
  const most = [...new Map(found.map((host) => [host.host, host])).values()].sort((a, b) => b.queued - a.queued).slice(0, HOSTS_SHOWN);
  const shown = totals && bar("Hosts", [
    { tone: "accent", count: totals.hosts_leased, words: "with a node", href: "#/hosts?state=leased" },
    { tone: "pale", count: totals.hosts_ready, words: "ready", href: "#/hosts?state=ready" },
    { tone: "idle", count: Math.max(0, totals.hosts_waiting - totals.hosts_in_backoff), words: "waiting", href: "#/hosts?state=waiting" },
    { tone: "refused", count: totals.hosts_in_backoff, words: "out of reach", href: "#/hosts?state=backoff" },
  ]);
  const rows = most.map((host) => [
    h("span", null, hostLink(host.host), h("small.why", null, host.why)), count(host.queued), gap(host.delay_s),
  ]);
  const list = rows.length
    ? table("Hosts with most to do", [{ title: "Host" }, { title: "Queued", kind: "n" }, { title: "Delay", kind: "n" }], rows)
    : empty("No host has URLs left", stats?.pages ? "All that is known is fetched, or waits to be tried again." : "The first pages bring more.");
  return card("Hosts with most to do", h("a", { href: "#/hosts" }, "All hosts"), shown, list);
}

/** @param {Stats | null} stats @param {any[]} groups */
function failures(stats, groups) {
  const rows = groups.slice(0, FAILURES_SHOWN).map((one) => [
    h("span", null, h("a.cause", { href: `#/failures?kind=${one.kind}` }, one.means), h("small.why", null, one.kind)), count(one.urls),
  ]);
  const retried = Object.values(stats?.retries ?? {}).reduce((sum, one) => sum + one, 0);
  const again = h("p.told", null, stats?.totals.scheduled
    ? `${counted(stats.totals.scheduled, "URL")} failed and will be tried again.`
    : retried ? `${counted(retried, "retry", "retries")} so far.` : "Nothing had to be tried again.");
  const list = rows.length
    ? table("URLs given up, by cause", [{ title: "Cause" }, { title: "URLs", kind: "n" }], rows)
    : empty("No URL was given up", "Pages that fail are tried again first.");
  const more = groups.length - rows.length;
  const others = more > 0 && h("p.told", null, h("a", { href: "#/failures" }, counted(more, "more cause")));
  return card("Given up", h("a", { href: "#/failures" }, "Review"), list, others, again);
}

/** @param {import("../api.js").Budgets} budgets */
function budgetsCard(budgets) {
  const known = /** @type {[string, number, number | null, (n: number) => string][]} */ ([
    ["Pages", budgets.pages, budgets.pages_max, count], ["Bytes", budgets.bytes, budgets.bytes_max, size],
    ["Time", budgets.elapsed_s, budgets.time_max_s, duration],
  ]).filter(([, , most]) => most !== null);
  if (!known.length) return null;
  const rows = known.map(([name, used, most, words]) =>
    h("div", null, h("p", null, name, h("b", null, ` ${words(used)}`), ` of ${words(most ?? 0)}`), gauge(name, used, most ?? 0)));
  return card("Budgets", h("a", { href: "#/settings" }, "Change"), h("div.gauges", null, rows));
}
