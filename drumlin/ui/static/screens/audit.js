/** Who changed what, newest first. */

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
    h("p.why", null, "Every change that a person made, with who, when and from where."), h("section.card", null, list));
  /** @type {Entry[]} */
  let older = [];
  /** @type {Entry[]} */
  let newest = [];
  let drawn = "";
  const draw = () => {
    const entries = [...newest, ...older];
    const key = `${entries.length} ${entries[0]?.time}`;
    if (key === drawn) return;
    drawn = key;
    const last = entries[entries.length - 1];
    const more = entries.length % SHOWN === 0 && last && h("button.more", { onclick: async () => {
      older = [...older, ...(await api.audit(SHOWN, last.time)).entries];
      draw();
    } }, "Show older");
    renew(list, entries.length ? rows(entries) : empty("Nobody has changed anything", "Pausing, blocking, budgets, retries: all of it is noted here."), more);
  };
  context.every(EVERY_S, async () => {
    const found = /** @type {Entry[]} */ ((await api.audit(SHOWN, 0)).entries);
    const end = older[0]?.time ?? 0;
    newest = older.length ? found.filter((one) => one.time > end) : found;
    draw();
  });
}

/** @param {Entry[]} entries */
function rows(entries) {
  const columns = [{ title: "Change" }, { title: "Who" }, { title: "Outcome", kind: "wide" }, { title: "When", kind: "n" }];
  return table("Changes", columns, entries.map((one) => [
    h("span", null, h("span", null, one.action.replace(".", ": ").replaceAll("_", " ")), h("small.why.mono", null, one.target)),
    h("span", null, one.name || one.token_id, h("small.why", null, [one.role, one.address].filter(Boolean).join(", "))),
    tag(one.outcome === "done" ? "ok" : "broken", one.outcome),
    moment(one.time),
  ]));
}
