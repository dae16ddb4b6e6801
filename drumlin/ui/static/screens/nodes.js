/** The nodes: how each is doing, and letting one finish, keeping one out, or letting it work again. */

import { api } from "../api.js";
import { ask } from "../dialog.js";
import { empty, fill, h, renew, prose, say, table, tag } from "../dom.js";
import { count, counted, duration, rate, size } from "../format.js";

/** @typedef {import("../app.js").Context} Context */

const EVERY_S = 2;
const SHOWN = 200;
const LAG_TOLD_S = 1;
const TONES = /** @type {Record<string, string>} */ ({
  active: "ok", draining: "refused", quarantined: "broken", failed: "broken", inactive: "idle", quiet: "idle",
});
const WORDS = /** @type {Record<string, string>} */ ({
  active: "At work", draining: "Finishing", quarantined: "In quarantine", failed: "Lost", inactive: "Has left", quiet: "Quiet",
});
const ORDER = ["failed", "quarantined", "draining", "active", "quiet", "inactive"];

/** @param {HTMLElement} main @param {Context} context */
export function nodesScreen(main, context) {
  const wanted = context.query.status in WORDS ? context.query.status : "";
  const { prefix = "" } = context.query;
  const [told, tabs, list] = [h("p.why"), h("div.tabs", { role: "group", "aria-label": "Status" }), h("div")];
  fill(main, h("header", null, h("h1", null, "Nodes"), finder(prefix)), told, tabs, h("section.card", null, list));
  let shown = SHOWN;
  let more = false;
  /** @type {any[]} */
  let nodes = [];
  let drawn = "";
  const draw = () => {
    const key = JSON.stringify([nodes, more]);
    if (key === drawn) return;
    drawn = key;
    renew(list, nodes.length ? rows(nodes, context, look) : none(wanted, prefix),
      more && h("button.more", { onclick: () => { shown += SHOWN; void look(); } }, "Show more"));
  };
  const look = async () => {
    const counts = context.live.stats?.nodes ?? {};
    say(told, summary(context.live.stats));
    renew(tabs, filters(counts, wanted));
    ({ nodes, more } = await first(wanted ? [wanted] : ORDER.filter((status) => counts[status] || !context.live.stats), prefix, shown));
    draw();
  };
  context.every(EVERY_S, look);
}

/** The first nodes of these statuses, one status after the other. @param {string[]} statuses @param {string} prefix @param {number} limit */
async function first(statuses, prefix, limit) {
  /** @type {any[]} */
  const nodes = [];
  let more = false;
  for (const status of statuses) {
    if (nodes.length >= limit) return { nodes, more: true };
    const found = await api.nodes({ status, prefix, limit: limit - nodes.length });
    nodes.push(...found.nodes.sort((/** @type {any} */ a, /** @type {any} */ b) => a.node_id.localeCompare(b.node_id, "en", { numeric: true })));
    more = Boolean(found.next);
  }
  return { nodes, more };
}

/** @param {string} wanted @param {string} prefix */
function none(wanted, prefix) {
  if (prefix) return empty(`No node's name begins with ${prefix}`, "");
  return wanted ? empty(`No node is ${WORDS[wanted].toLowerCase()}`, "") : empty("No node has registered", prose("`drumlin node` starts one."));
}

/** A field that leads to the nodes whose names begin so. @param {string} prefix */
function finder(prefix) {
  const box = /** @type {HTMLInputElement} */ (h("input", { id: "node", type: "text", value: prefix, placeholder: "node-1", autocomplete: "off", spellcheck: "false" }));
  const form = h("form.finder", { role: "search" }, h("label.hidden", { for: "node" }, "Find nodes by how their names begin"), box, h("button", { type: "submit" }, "Find"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = `#/nodes${box.value.trim() && `?prefix=${encodeURIComponent(box.value.trim())}`}`;
  });
  return form;
}

/** Links to the nodes of one status, if there is more than one. @param {Record<string, number>} counts @param {string} wanted */
function filters(counts, wanted) {
  const there = ORDER.filter((status) => counts[status]);
  if (there.length < 2 && !wanted) return [];
  const all = there.reduce((sum, status) => sum + counts[status], 0);
  return ["", ...there].map((status) => h("a", { href: `#/nodes${status && `?status=${status}`}`, "aria-current": status === wanted ? "true" : null },
    status ? WORDS[status] : "All", h("span.count", null, count(status ? counts[status] : all))));
}

/** @param {import("../api.js").Stats | null} stats */
function summary(stats) {
  const all = Object.values(stats?.nodes ?? {}).reduce((sum, one) => sum + one, 0);
  if (!stats || !all) return "";
  return `${count(stats.nodes.active ?? 0)} of ${counted(all, "node")} at work, ${rate(stats.pages_per_s)} pages a second, ${counted(stats.in_flight, "request")} under way.`;
}

/** @param {any[]} nodes @param {Context} context @param {() => Promise<void>} look */
function rows(nodes, context, look) {
  const columns = [
    { title: "Node" }, { title: "Pages/s", kind: "n" }, { title: "Under way", kind: "n" }, { title: "Hosts", kind: "n wide" },
    { title: "Since it began", kind: "n wide" }, { title: "Received", kind: "n wide" }, { title: "Heard", kind: "n wide" },
    ...(context.operates ? [{ title: "", kind: "act" }] : []),
  ];
  // While a crawl does not run, its own time stands still.
  const now = (context.session.running && context.live.stats?.time) || Date.now() / 1000;
  return table("Nodes", columns, nodes.map((node) => [
    h("span", null, h("span.mono", null, node.node_id), " ", tag(TONES[node.status] ?? "idle", WORDS[node.status] ?? node.status), h("small.why", null, about(node))),
    rate(node.pages_per_s), count(node.current_load), count(node.leases), count(node.total_crawled), size(node.total_bytes),
    node.last_seen ? `${duration(Math.max(0, Math.round(now - node.last_seen)))} ago` : "–",
    context.operates && levers(node, look),
  ]));
}

/** What is worth saying of a node in a line. @param {any} node */
function about(node) {
  const lag = node.lag_s >= LAG_TOLD_S ? `storing is ${duration(node.lag_s)} behind` : "";
  const { failure, version, host } = node.metadata;
  return [node.ip_address, host && `on ${host}`, version && `version ${version}`, lag, failure].filter(Boolean).join(", ");
}

/** @param {any} node @param {() => Promise<void>} look */
function levers(node, look) {
  const order = (/** @type {string} */ verb, /** @type {string} */ title, /** @type {string} */ text, danger = false) =>
    ask({
      title, text, danger, verb: title.split(" ")[0].replace("?", ""),
      act: async () => {
        const { status } = await api.order(node.node_id, verb);
        await look();
        return `${node.node_id}: ${(WORDS[status] ?? status).toLowerCase()}.`;
      },
    });
  const has = `${counted(node.current_load, "request")} under way and ${counted(node.leases, "host")}`;
  const button = (/** @type {string} */ text, /** @type {() => void} */ onclick) => h("button.small", { onclick, "aria-label": `${text} ${node.node_id}` }, text);
  if (node.status === "draining" || node.status === "quarantined") {
    return h("span.row", null, button("Release", () => order("release", `Release ${node.node_id}?`, "It is given work again as soon as it asks.")));
  }
  if (node.status !== "active") return null;
  return h("span.row", null,
    button("Drain", () => order("drain", `Drain ${node.node_id}?`, `It has ${has}. It finishes the requests, gives the hosts back, and leaves until you release it.`)),
    button("Quarantine", () => order("quarantine", `Quarantine ${node.node_id}?`, `It has ${has}. It gets no more answers, and what it sends is not taken, until you release it.`, true)));
}
