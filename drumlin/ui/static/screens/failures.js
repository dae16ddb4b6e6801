/** What failed: URLs given up, by cause, to be tried again or dropped as a group; and what else was not fetched, and why. */

import { api } from "../api.js";
import { ask } from "../dialog.js";
import { card, empty, fill, h, renew, table, tag, urlLink } from "../dom.js";
import { count, counted, moment } from "../format.js";
import { Paged } from "../paged.js";

/** @typedef {import("../app.js").Context} Context */

const EVERY_S = 4;
const SHOWN = 100;
const HOSTS_SHOWN = 10;
const AT_ONCE = 1000;

/** @param {HTMLElement} main @param {Context} context */
export function failuresScreen(main, context) {
  const { kind = "", host = "" } = context.query;
  const [groups, hosts, letters, others] = [h("div"), h("div"), h("div"), h("div.two")];
  fill(main, h("header", null, h("h1", null, "Failures")), groups, hosts, letters, others);
  const byHost = new Paged(async (after) => {
    const found = await api.groupsByHost({ kind, after, limit: HOSTS_SHOWN });
    return { rows: found.groups, next: found.next };
  });
  const listed = new Paged(async (after) => {
    const found = await api.letters({ kind, host, after, limit: SHOWN });
    return { rows: found.dead_letters, next: found.next };
  });
  /** @type {any[]} */
  let causes = [];
  const draw = () => {
    renew(groups, groupsCard(causes, context, again));
    renew(hosts, host ? null : hostsCard(byHost, kind, context, again, draw));
    renew(letters, lettersCard(listed, causes, { kind, host }, context, again, draw));
    renew(others, refused(context), retried(context));
  };
  const look = async () => {
    const [found] = await Promise.all([api.groups(), host ? null : byHost.look(), listed.look()]);
    causes = found.groups;
    draw();
  };
  /** After a change, from the beginning. */
  const again = async () => {
    byHost.alone = listed.alone = true;
    await look();
  };
  context.every(EVERY_S, look);
}

/** @param {Paged} paged @param {() => void} draw */
const more = (paged, draw) => paged.next && h("button.more", { onclick: async () => { await paged.more(); draw(); } }, "Show more");

/** The hosts with most of it. @param {Paged} paged @param {string} kind @param {Context} context @param {() => Promise<void>} look @param {() => void} draw */
function hostsCard(paged, kind, context, look, draw) {
  if (paged.rows.length < 2) return null;
  const columns = [{ title: "Host" }, { title: "URLs", kind: "n" }, ...(context.operates ? [{ title: "", kind: "act" }] : [])];
  return card(kind ? `Hosts with most of ${kind}` : "Hosts with most given up", null, table("URLs given up, by host", columns, paged.rows.map((one) => [
    h("span", null, h("a.host", { href: `#/failures?kind=${one.kind}&host=${encodeURIComponent(one.host)}` }, one.host), !kind && h("small.why", null, one.means)),
    count(one.urls),
    context.operates && levers({ kind: one.kind, host: one.host }, one.urls, `of ${one.host} that failed because ${one.means}`, look),
  ])), more(paged, draw));
}

/** @param {any[]} groups @param {Context} context @param {() => Promise<void>} look */
function groupsCard(groups, context, look) {
  const total = groups.reduce((sum, one) => sum + one.urls, 0);
  if (!groups.length) return card("Given up", null, empty("No URL was given up", "A page that fails is tried again first; only what fails for good comes here."));
  const columns = [{ title: "Cause" }, { title: "URLs", kind: "n" }, ...(context.operates ? [{ title: "", kind: "act" }] : [])];
  return card(`Given up: ${counted(total, "URL")}`, null, table("URLs given up, by cause", columns, groups.map((one) => [
    h("span", null, h("a.cause", { href: `#/failures?kind=${one.kind}` }, one.means), h("small.why", null, one.kind)), count(one.urls),
    context.operates && levers({ kind: one.kind }, one.urls, `that failed because ${one.means}`, look),
  ])));
}

/** @param {Paged} paged @param {any[]} groups @param {{kind: string, host: string}} of @param {Context} context @param {() => Promise<void>} look @param {() => void} draw */
function lettersCard(paged, groups, of, context, look, draw) {
  const letters = paged.rows;
  if (!letters.length && !of.kind && !of.host) return null;
  const group = groups.find((one) => one.kind === of.kind);
  const title = [group ? `Because ${group.means}` : "URLs", of.host && `of ${of.host}`].filter(Boolean).join(" ");
  const all = of.kind || of.host ? h("a", { href: "#/failures" }, "Show all") : null;
  const columns = [{ title: "URL" }, { title: "Tries", kind: "n wide" }, { title: "Last try", kind: "n" }];
  const rows = letters.map((one) => [
    h("span", null, urlLink(one.url), h("small.why", null, tag("broken", one.kind), one.last_error ? ` ${one.last_error}` : "")),
    count(one.attempts), moment(one.last_failed),
  ]);
  const steer = context.operates && of.host && letters.length > 0 && !paged.next && levers({ kind: of.kind, host: of.host }, letters.length, `of ${of.host}`, look);
  return card(title, h("span.row", null, steer, all), rows.length ? table("URLs given up", columns, rows) : empty("None here", "Nothing of this kind is given up now."), more(paged, draw));
}

/** @param {{kind?: string, host?: string}} of @param {number} urls @param {string} which @param {() => Promise<void>} look */
function levers(of, urls, which, look) {
  const all = async (/** @type {string} */ verb, /** @type {(text: string) => void} */ progress) => {
    let changed = 0;
    for (;;) {
      const part = (await api.changeLetters(verb, { ...of, limit: AT_ONCE })).changed;
      changed += part;
      if (part < AT_ONCE || changed >= urls) break;
      progress(`${count(changed)} of ${count(urls)}…`);
    }
    await look();
    return changed;
  };
  const retry = () => ask({
    title: `Retry ${counted(urls, "URL")}?`, verb: "Retry", text: `${counted(urls, "URL")} ${which} go back into the queue and are fetched in their turn.`,
    act: async (_, progress) => `${counted(await all("retry", progress), "URL")} are queued again.`,
  });
  const drop = () => ask({
    title: `Drop ${counted(urls, "URL")}?`, verb: "Drop", danger: true,
    text: `${counted(urls, "URL")} ${which} count as done and are not fetched again. This cannot be undone.`,
    act: async (_, progress) => `${counted(await all("drop", progress), "URL")} were dropped.`,
  });
  return h("span.row", null, h("button.small", { onclick: retry }, "Retry…"), h("button.small", { onclick: drop }, "Drop…"));
}

/** @param {Context} context */
function refused(context) {
  const found = Object.entries(context.live.stats?.refused ?? {}).sort((a, b) => b[1] - a[1]);
  const denied = context.live.stats?.outcomes.denied ?? 0;
  const rows = [...(denied ? [["denied by robots.txt", count(denied)]] : []), ...found.map(([reason, many]) => [reason.replaceAll("_", " "), count(many)])];
  return card("Not followed", null, rows.length
    ? table("Links not followed, by reason", [{ title: "Reason" }, { title: "Links", kind: "n" }], rows)
    : h("p.soft", null, "Every link that was found was followed."));
}

/** @param {Context} context */
function retried(context) {
  const found = Object.entries(context.live.stats?.retries ?? {}).sort((a, b) => b[1] - a[1]);
  return card("Tried again", null, found.length
    ? table("Tries that failed and were repeated, by cause", [{ title: "Cause" }, { title: "Times", kind: "n" }], found.map(([kind, many]) => [kind.replaceAll("_", " "), count(many)]))
    : h("p.soft", null, "Nothing had to be tried again."));
}
