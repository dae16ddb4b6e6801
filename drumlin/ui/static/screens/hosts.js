/** Hosts by their state, those with most to do first; and all of them by name, found by how it begins. */

import { api } from "../api.js";
import { empty, fill, h, hostLink, renew, say, table } from "../dom.js";
import { count, gap, size } from "../format.js";
import { Paged } from "../paged.js";

/** @typedef {import("../app.js").Context} Context */

const HOST_STATES = /** @type {Record<string, string>} */ ({
  leased: "With a node", ready: "Ready", waiting: "Waiting", backoff: "Out of reach", blocked: "Blocked", all: "All by name",
});
const ALL = "all";
const NOTHING = /** @type {Record<string, string>} */ ({
  leased: "They all wait, or nothing is left to fetch.", ready: "Every host that has URLs is with a node, or waits.",
  waiting: "No host waits for its delay.", backoff: "No host that has URLs left is.",
  blocked: "A blocked host is asked nothing until you unblock it.",
});
const EVERY_S = 3;
const ASKED = 200;
const SHOWN = 100;

/** @param {HTMLElement} main @param {Context} context */
export function hostsScreen(main, context) {
  const rests = !context.session.running || context.live.stats?.state === "finished";
  const state = context.query.state in HOST_STATES ? context.query.state : context.query.prefix || rests ? ALL : "leased";
  const [list, told] = [h("div"), h("p.told.first")];
  const tabs = h("div.tabs", { role: "group", "aria-label": "State" }, Object.entries(HOST_STATES).map(([name, words]) =>
    h("a", { href: `#/hosts?state=${name}`, "aria-current": name === state ? "true" : null }, words, h("span.count", { "data-state": name }))));
  fill(main, h("header", null, h("h1", null, "Hosts"), finder(context.query.prefix ?? "")), tabs, h("section.card", null, told, list));
  if (state === ALL) byName(context, list);
  else byState(context, state, told, list);
  const counts = () => {
    for (const [name, many] of Object.entries(totals(context))) {
      const place = tabs.querySelector(`[data-state="${name}"]`);
      if (place) say(place, many ? count(many) : "");
    }
  };
  context.on("stats", counts);
  counts();
}

/** Some of the hosts in one state. @param {Context} context @param {string} state @param {HTMLElement} told @param {HTMLElement} list */
function byState(context, state, told, list) {
  let shown = SHOWN;
  /** @type {any[]} */
  let hosts = [];
  const draw = () => {
    const total = totals(context)[state] ?? hosts.length;
    say(told, hosts.length >= ASKED && total > hosts.length ? `${count(hosts.length)} of ${count(total)} hosts; any other can be found by its name.` : "");
    renew(list, hosts.length ? rows(hosts.slice(0, shown)) : empty(`No host is ${HOST_STATES[state].toLowerCase()}`, NOTHING[state]),
      hosts.length > shown && h("button.more", { onclick: () => { shown += SHOWN; draw(); } }, `Show more of ${count(hosts.length)}`));
  };
  context.every(EVERY_S, async () => {
    hosts = (await api.hosts(state, ASKED)).hosts.sort((/** @type {any} */ a, /** @type {any} */ b) => b.queued - a.queued);
    draw();
  });
}

/** All hosts whose names begin so. @param {Context} context @param {HTMLElement} list */
function byName(context, list) {
  const { prefix = "" } = context.query;
  const paged = new Paged(async (after) => {
    const { hosts, next } = await api.hostsByName({ prefix, after, limit: SHOWN });
    return { rows: hosts, next };
  });
  const draw = () => renew(list,
    paged.rows.length ? rows(paged.rows) : empty(prefix ? `No host's name begins with ${prefix}` : "No host is known", "A name is written as in URLs: example.org, or example.org:8080."),
    paged.next && h("button.more", { onclick: async () => { await paged.more(); draw(); } }, "Show more"));
  context.every(EVERY_S, async () => { await paged.look(); draw(); });
}

/** @param {Context} context @returns {Record<string, number>} */
function totals(context) {
  const of = context.live.stats?.totals;
  if (!of) return {};
  return {
    leased: of.hosts_leased, ready: of.hosts_ready, waiting: of.hosts_waiting, backoff: of.hosts_in_backoff,
  };
}

/** @param {any[]} hosts */
function rows(hosts) {
  const columns = [{ title: "Host" }, { title: "Queued", kind: "n" }, { title: "Pages", kind: "n wide" }, { title: "Received", kind: "n wide" }, { title: "Delay", kind: "n" }];
  return table("Hosts", columns, hosts.map((host) => [
    h("span", null, hostLink(host.host), h("small.why", null, host.why)),
    count(host.queued), count(host.pages), size(host.bytes), gap(host.delay_s),
  ]));
}

/** A field that leads to the hosts whose names begin so. @param {string} prefix */
function finder(prefix) {
  const box = /** @type {HTMLInputElement} */ (h("input", { id: "host", type: "text", value: prefix, placeholder: "example.org", autocomplete: "off", spellcheck: "false" }));
  const form = h("form.finder", { role: "search" }, h("label.hidden", { for: "host" }, "Find hosts by how their names begin"), box, h("button", { type: "submit" }, "Find"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = box.value.trim().replace(/^https?:\/\//, "").replace(/\/.*$/, "");
    if (name) location.hash = `#/hosts?prefix=${encodeURIComponent(name)}`;
  });
  return form;
}
