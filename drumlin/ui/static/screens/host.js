/** One host: how it stands and why, what robots.txt says, and the levers to slow it down, block it or limit it. */

import { CallError, api } from "../api.js";
import { ask } from "../dialog.js";
import { card, empty, fill, h, prose, renew, table, tag, urlLink } from "../dom.js";
import { clock, count, counted, duration, gap, moment, quantity, size } from "../format.js";
import { outcomeTag } from "../outcomes.js";

/** @typedef {import("../app.js").Context} Context */

const EVERY_S = 2;
const TONES = /** @type {Record<string, string>} */ ({ ready: "accent", leased: "ok", waiting: "idle", idle: "idle", blocked: "broken" });
/** Why no fetches are shown, by how much of the store was searched. */
const NO_FETCHES = /** @type {Record<string, string>} */ ({
  none: "This coordinator has no store to look into.", partly: "None is in the newest tables; older ones were not searched.", whole: "None is stored.",
});
/** What a URL may come to without a request for it. */
const UNASKED = new Set(["denied", "skipped"]);
const WORDS = /** @type {Record<string, string>} */ ({ ready: "Ready", leased: "With a node", waiting: "Waiting", idle: "Nothing queued", blocked: "Blocked" });

/** @param {HTMLElement} main @param {Context} context @param {string} name */
export function hostScreen(main, context, name) {
  const [pill, actions, why, body] = [h("span.pill"), h("div.actions"), h("p.why"), h("div")];
  fill(main, h("p.crumb", null, h("a", { href: "#/hosts" }, "Hosts")),
    h("header", null, h("h1.mono", null, name), pill, actions), why, body);
  let drawn = "";
  const look = async () => {
    try {
      const host = await api.host(name);
      pill.className = `pill ${TONES[host.state] ?? ""}`;
      fill(pill, WORDS[host.state] ?? host.state);
      renew(why, ...prose(host.why));
      const key = JSON.stringify([host.blocked, host.budget, host.delay_s, host.queued, host.pages]);
      if (context.operates && drawn !== key) fill(actions, levers(host, look));
      drawn = key;
      const open = body.querySelector("details")?.open;
      renew(body, figures(host), backoffs(host), fetches(host), robots(host, open));
    } catch (wrong) {
      if (!(wrong instanceof CallError) || wrong.status !== 404) throw wrong;
      fill(body, empty("This host is not known", [...prose(`${wrong.message} ${wrong.hint}`)]));
    }
  };
  context.every(EVERY_S, look);
}

/** @param {any} host */
function figures(host) {
  const items = [
    ["Queued", count(host.queued), `of ${counted(host.urls, "known URL")}`],
    ["Pages", count(host.pages), host.budget === null ? "no budget" : `budget ${count(host.budget)}`],
    ["Received", size(host.bytes), host.pages ? `${size(host.bytes / host.pages)} a page` : ""],
    ["Delay", gap(host.delay_s), host.delay_why],
    ["With", host.lease_node || "nobody", host.lease_until ? `until ${clock(host.lease_until)}` : host.state === "waiting" ? `next at ${clock(host.next_contact)}` : ""],
  ];
  return h("dl.figures", null, items.map(([name, value, small]) => h("div", null, h("dt", null, name), h("dd", null, h("span", null, value), h("small", null, small)))));
}

/** @param {any} host @param {() => Promise<void>} look */
function levers(host, look) {
  const button = (/** @type {string} */ text, /** @type {() => void} */ onclick) => h("button", { onclick }, text);
  return [
    button("Slow down…", () => slowDown(host, look)),
    button("Budget…", () => limit(host, look)),
    host.blocked ? button("Unblock", () => unblock(host, look)) : button("Block…", () => block(host, look)),
  ];
}

/** To be typed, so without separators. @param {number} n */
const tenths = (n) => String(Math.round(n * 10) / 10);

/** @param {any} host @param {() => Promise<void>} look */
function slowDown(host, look) {
  const seconds = (/** @type {string} */ text) => {
    if (!text.trim()) return null;
    const value = quantity(text, "duration");
    if (!value || value > 86_400) throw new Error("Type a time such as 5 s or 2 min, at most a day.");
    return value;
  };
  ask({
    title: `How often may ${host.host} be asked?`, verb: "Change",
    text: `Now once every ${gap(host.delay_s)} at most. What its robots.txt asks for, or a 429, may make it slower.`,
    field: { label: "At most once every", value: `${tenths(Math.max(1, host.delay_s * 2))} s`, hint: "Empty: the delay of the crawl." },
    means: (text) => {
      const value = seconds(text);
      if (value === null) return "The crawl's own delay applies again.";
      const whole = host.queued > 1 ? ` Its ${count(host.queued)} queued URLs take at least ${duration(host.queued * value)}.` : "";
      const later = host.lease_until ? ` ${host.lease_node} has it, and hears of that by ${clock(host.lease_until)}.` : "";
      return `${host.host} is asked once every ${gap(value)} at most.${later}${whole}`;
    },
    act: async (text) => {
      const now = await api.changeHost(host.host, { delay_s: seconds(text) });
      await look();
      return `${host.host} is asked once every ${gap(now.delay_s)} at most.`;
    },
  });
}

/** @param {any} host @param {() => Promise<void>} look */
function limit(host, look) {
  const pages = (/** @type {string} */ text) => {
    if (!text.trim()) return null;
    const value = quantity(text, "count");
    if (value === null) throw new Error("Type a number of pages.");
    return Math.round(value);
  };
  ask({
    title: `How many pages of ${host.host}?`, verb: "Change",
    text: `${counted(host.pages, "page")} of it are fetched and ${counted(host.queued, "URL")} are queued.`,
    field: { label: "Pages at most", value: host.budget === null ? String(host.pages + 100) : String(host.budget), hint: "Empty: no budget.", kind: "numeric" },
    means: (text) => {
      const value = pages(text);
      if (value === null) return "It may be fetched without a limit of its own.";
      const left = Math.max(0, value - host.pages);
      return left ? `${counted(left, "more page")} will be fetched at most.` : "Nothing more of it will be fetched.";
    },
    act: async (text) => {
      const now = await api.changeHost(host.host, { budget: pages(text) });
      await look();
      return now.budget === null ? `${host.host} has no budget.` : `${host.host} has a budget of ${counted(now.budget, "page")}.`;
    },
  });
}

/** @param {any} host @param {() => Promise<void>} look */
function block(host, look) {
  ask({
    title: `Block ${host.host}?`, verb: "Block", danger: true,
    text: `No node is given its ${counted(host.queued, "queued URL")} until you unblock it. Its ${counted(host.pages, "page")} stay.`,
    act: async () => {
      await api.changeHost(host.host, { blocked: true });
      await look();
      return `${host.host} is blocked.`;
    },
  });
}

/** @param {any} host @param {() => Promise<void>} look */
function unblock(host, look) {
  ask({
    title: `Unblock ${host.host}?`, verb: "Unblock", text: `${counted(host.queued, "URL")} of it can be fetched again.`,
    act: async () => {
      await api.changeHost(host.host, { blocked: false });
      await look();
      return `${host.host} is no longer blocked.`;
    },
  });
}

/** @param {any} host */
function backoffs(host) {
  const rows = Object.entries(host.backoff).map(([scheme, one]) => [
    scheme, tag("broken", one.kind), one.error, count(one.tries), moment(one.since), `${moment(one.next_try)}${one.asked ? ", as it asked" : ""}`,
  ]);
  if (!rows.length) return null;
  const columns = ["Scheme", "Cause", "Error", "Tries", "Since", "Next try"].map((title, at) => ({ title, kind: at === 2 || at === 4 ? "wide" : at === 3 ? "n" : "" }));
  return card("Out of reach", null, table("Why it is out of reach", columns, rows));
}

/** What was asked of it last. @param {any} host */
function fetches(host) {
  const asked = host.last_fetches.filter((/** @type {any} */ one) => !UNASKED.has(one.outcome) && one.kind !== "robots_unreachable");
  const rows = asked.map((/** @type {any} */ one) => [
    h("span", null, urlLink(one.url), one.error && h("small.why", null, one.error)), h("span", null, outcomeTag(one), h("small.why", null, moment(one.crawl_time))),
  ]);
  const columns = [{ title: "URL" }, { title: "Answer" }];
  return card("Asked last", null, rows.length ? h("div.lately", null, table("What was asked of it last", columns, rows)) : h("p.soft", null, NO_FETCHES[host.store] ?? ""));
}

/** @param {any} host @param {boolean} [open] */
function robots(host, open) {
  const files = Object.entries(host.robots).map(([scheme, one]) => {
    const said = one.allowAll ? `Everything is allowed${one.reason ? ` (${one.reason})` : ""}.` : one.denyAll ? `Nothing is allowed${one.reason ? ` (${one.reason})` : ""}.` : "";
    const until = one.expiresAt ? ` Believed until ${moment(one.expiresAt)}.` : "";
    return h("div", null, h("p.soft", null, `${scheme}://${host.host}/robots.txt. `, said, until),
      one.rulesBlob && h("details", { open: open || null }, h("summary", null, `Show its ${counted(one.rulesBlob.trim().split("\n").length, "line")}`), h("pre", null, one.rulesBlob)));
  });
  const links = h("a", { href: `#/failures?host=${encodeURIComponent(host.host)}` }, "Its URLs that were given up");
  return card("robots.txt", links, files.length ? files : h("p.soft", null, "Nothing is known of it now: it is asked for before the next page."));
}
