/** Every setting with its value and where that comes from. Budgets can be changed here; the rest is read. */

import { api } from "../api.js";
import { gauge } from "../chart.js";
import { ask } from "../dialog.js";
import { card, fill, h, renew, table, tag } from "../dom.js";
import { count, duration, quantity, size } from "../format.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {{name: string, field: string, help: string, kind: string, value: any, shown: string, default: string, origin: string, changeable: boolean}} Setting */

const EVERY_S = 5;
const BUDGETS = /** @type {Record<string, {words: string, used: (budgets: import("../api.js").Budgets) => number, show: (n: number) => string, example: string}>} */ ({
  pages_max: { words: "Pages", used: (budgets) => budgets.pages, show: count, example: "such as 50000" },
  bytes_max: { words: "Bytes", used: (budgets) => budgets.bytes, show: size, example: "such as 10 GB" },
  time_max_s: { words: "Time", used: (budgets) => budgets.elapsed_s, show: duration, example: "such as 2 h" },
});
const ORIGINS = /** @type {Record<string, [string, string]>} */ ({
  default: ["default", "idle"], given: ["start", "idle"], changed: ["changed since", "accent"],
});

/** @param {HTMLElement} main @param {Context} context */
export function settingsScreen(main, context) {
  const [budgets, chosen, defaults] = [h("div"), h("div"), h("div")];
  fill(main, h("header", null, h("h1", null, "Settings")), budgets, chosen, defaults);
  const look = async () => {
    const [crawl, found] = await Promise.all([api.crawl(), api.settings()]);
    const settings = /** @type {Setting[]} */ (found.settings);
    const open = defaults.querySelector("details")?.open ?? false;
    renew(budgets, budgetsCard(settings, crawl.budgets, context, look));
    const given = settings.filter((one) => one.origin !== "default");
    renew(chosen, card("Chosen for this crawl", null, given.length ? rows(given) : h("p.soft", null, "Every setting has its default.")));
    const others = settings.filter((one) => one.origin === "default");
    renew(defaults, h("section.card", null, h("details", { open }, h("summary", null, `${count(others.length)} settings have their default`), rows(others))));
  };
  context.every(EVERY_S, look);
}

/** @param {Setting[]} settings */
const rows = (settings) => table("Settings", [{ title: "Setting", kind: "half" }, { title: "Value" }, { title: "From", kind: "n" }], settings.map((one) => [
  h("span", null, h("span.mono", null, one.name), h("small.why", null, one.help)),
  h("span.mono.break", null, one.shown),
  tag(ORIGINS[one.origin]?.[1] ?? "idle", ORIGINS[one.origin]?.[0] ?? one.origin),
]));

/** @param {Setting[]} settings @param {import("../api.js").Budgets} used @param {Context} context @param {() => Promise<void>} look */
function budgetsCard(settings, used, context, look) {
  const rows = settings.filter((one) => one.field in BUDGETS).map((one) => {
    const { words, show, used: of } = BUDGETS[one.field];
    const most = one.value === null ? h("p", null, words, h("b", null, ` ${show(of(used))}`), ", no limit") : h("p", null, words, h("b", null, ` ${show(of(used))}`), ` of ${show(one.value)}`);
    const change = context.operates && h("button.small", { onclick: () => changeBudget(one, used, look), "aria-label": `Change the budget of ${words.toLowerCase()}` }, "Change…");
    return h("div", null, h("div.row.apart", null, most, change), one.value !== null && gauge(words, of(used), one.value));
  });
  const why = context.session.running ? "Your token lets you look. An operator's lets you change these." : "They can be changed while the crawl runs.";
  const note = !context.operates && h("p.told", null, why);
  return card("Budgets", null, h("div.gauges", null, rows), note);
}

/** @param {Setting} setting @param {import("../api.js").Budgets} budgets @param {() => Promise<void>} look */
function changeBudget(setting, budgets, look) {
  const { words, show, used: of, example } = BUDGETS[setting.field];
  const used = of(budgets);
  const value = (/** @type {string} */ text) => {
    if (!text.trim()) return null;
    const read = quantity(text, setting.kind);
    if (read === null || read <= 0) throw new Error(`Type an amount, ${example}.`);
    return setting.kind === "duration" ? read : Math.round(read);
  };
  ask({
    title: `${words} at most?`, verb: "Change", text: `${show(used)} are used so far.`,
    // Exactly the present value: one that is rounded for people would become the budget of whoever changes nothing.
    field: { label: "At most", value: setting.value === null ? "" : setting.shown, hint: `${example[0].toUpperCase()}${example.slice(1)}. Empty: no limit.` },
    means: (text) => {
      const most = value(text);
      if (most === null) return "The crawl goes on until nothing is left.";
      return most <= used ? `That much is used already: the crawl stops at once.` : `${show(most - used)} more.`;
    },
    act: async (text) => {
      await api.changeCrawl({ [setting.field]: value(text) });
      await look();
      return `The budget of ${words.toLowerCase()} is changed.`;
    },
  });
}
