/** What failed: URLs given up, by cause, to be tried again or dropped as a group; and what else was not fetched, and why. */

import { api } from "../api.js";
import { ask } from "../dialog.js";
import { card, empty, fill, h, hostLink, prose, renew, table, tag, urlLink } from "../dom.js";
import { count, counted, moment } from "../format.js";

/** @typedef {import("../app.js").Context} Context */

const EVERY_S = 4;
const SHOWN = 200;
const AT_ONCE = 1000;

/** @param {HTMLElement} main @param {Context} context */
export function failuresScreen(main, context) {
  const { kind = "", host = "" } = context.query;
  const [groups, letters, others] = [h("div"), h("div"), h("div.two")];
  fill(main, h("header", null, h("h1", null, "Failures")), groups, letters, others);
  const look = async () => {
    const [found, listed] = await Promise.all([api.groups(), api.letters({ kind, host, limit: SHOWN })]);
    renew(groups, groupsCard(found.groups, context, look));
    renew(letters, lettersCard(listed.dead_letters, found.groups, { kind, host }, context, look));
    renew(others, refused(context), retried(context));
  };
  context.every(EVERY_S, look);
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

/** @param {any[]} letters @param {any[]} groups @param {{kind: string, host: string}} of @param {Context} context @param {() => Promise<void>} look */
function lettersCard(letters, groups, of, context, look) {
  if (!letters.length && !of.kind && !of.host) return null;
  const group = groups.find((one) => one.kind === of.kind);
  const title = [group ? `Because ${group.means}` : "URLs", of.host && `of ${of.host}`].filter(Boolean).join(" ");
  const all = of.kind || of.host ? h("a", { href: "#/failures" }, "Show all") : null;
  const columns = [{ title: "URL" }, { title: "Tries", kind: "n wide" }, { title: "Last try", kind: "n" }];
  const rows = letters.map((one) => [
    h("span", null, urlLink(one.url), h("small.why", null, tag("broken", one.kind), one.last_error ? ` ${one.last_error}` : "")),
    count(one.attempts), moment(one.last_failed),
  ]);
  const total = group && !of.host ? group.urls : letters.length;
  const more = letters.length >= SHOWN && h("p.told", null, `The first ${count(letters.length)}${total > letters.length ? ` of ${count(total)}` : ""}.`);
  const steer = context.operates && of.host && letters.length > 0 && levers({ kind: of.kind, host: of.host }, letters.length, `of ${of.host}`, look);
  return card(title, h("span.row", null, steer, all), rows.length ? table("URLs given up", columns, rows) : empty("None here", "Nothing of this kind is given up now."), more);
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
