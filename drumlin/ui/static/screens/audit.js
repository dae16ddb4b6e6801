/** Who changed what and who logged in, newest first. */

import { api } from "../api.js";
import { empty, fill, h, renew, table, tag } from "../dom.js";
import { moment } from "../format.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {{time: number, token_id: string, name: string, role: string, action: string, target: string, outcome: string, address: string}} Entry */

const EVERY_S = 5;
const SHOWN = 100;

/** @param {HTMLElement} main @param {Context} context */
export function auditScreen(main, context) {
  const list = h("div");
  fill(main, h("header", null, h("h1", null, "Audit")),
    h("p.why", null, "Every change and every log-in to this page, with who, when and from where."), h("section.card", null, list));
  const read = new Read();
  let drawn = "";
  const draw = () => {
    const key = `${read.entries.length} ${read.entries[0]?.time} ${read.more}`;
    if (key === drawn) return;
    drawn = key;
    const more = read.more && h("button.more", { onclick: async () => {
      await read.older();
      draw();
    } }, "Show older");
    renew(list, read.entries.length ? rows(read.entries) : empty("Nothing is noted yet", "Logging in, pausing, blocking, budgets, retries: all of it is noted here."), more);
  };
  context.every(EVERY_S, async () => {
    await read.newer();
    draw();
  });
}

/** The entries read so far, without a gap: newer ones are added in front, older ones behind. */
class Read {
  /** @type {Entry[]} */
  entries = [];
  /** Whether there may be older ones. */
  more = false;
  /** @type {Set<string>} */
  known = new Set();

  async newer() {
    const first = !this.entries.length;
    /** @type {Entry[]} */
    const news = [];
    let page = await this.page(0);
    news.push(...page);
    // More may have come since the last look than one page holds.
    while (!first && page.length === SHOWN && !page.some((one) => this.known.has(keyOf(one)))) {
      page = await this.page(page[SHOWN - 1].time);
      news.push(...page);
    }
    if (first) this.more = page.length === SHOWN;
    this.entries = [...this.unknown(news), ...this.entries];
  }

  async older() {
    const page = await this.page(this.entries[this.entries.length - 1].time);
    this.more = page.length === SHOWN;
    this.entries = [...this.entries, ...this.unknown(page)];
  }

  /** @param {number} before @returns {Promise<Entry[]>} */
  page = async (before) => (await api.audit(SHOWN, before)).entries;

  /** Those that were not known, which they are from now on. @param {Entry[]} entries */
  unknown(entries) {
    const found = entries.filter((one) => !this.known.has(keyOf(one)));
    for (const one of found) this.known.add(keyOf(one));
    return found;
  }
}

/** @param {Entry} entry */
const keyOf = (entry) => JSON.stringify(entry);

/** @param {Entry[]} entries */
function rows(entries) {
  const columns = [{ title: "What" }, { title: "Who" }, { title: "Outcome", kind: "wide" }, { title: "When", kind: "n" }];
  return table("Audit log", columns, entries.map((one) => [
    h("span", null, h("span", null, one.action.replace(".", ": ").replaceAll("_", " ")), h("small.why.mono", null, one.target)),
    h("span", null, one.name || one.token_id, h("small.why", null, [one.role, one.address].filter(Boolean).join(", "))),
    tag(one.outcome === "done" ? "ok" : "broken", one.outcome),
    moment(one.time),
  ]));
}
