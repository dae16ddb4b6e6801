/** What the stored pages are: types, sizes, languages, and how many repeat others. Each number leads to the pages it counts. */

import { api } from "../api.js";
import { bars } from "../bars.js";
import { bar } from "../chart.js";
import { card, empty, fill, h, prose, renew, table } from "../dom.js";
import { clock, count, counted, percent, short, size } from "../format.js";
import { askAt, askLink, pagesWhere, quoted } from "../questions.js";

/** @typedef {import("../app.js").Context} Context */
/**
 * @typedef {{pages: number, bytes: number, types: {type: string, pages: number, bytes: number}[],
 *   sizes: {from_bytes: number, to_bytes: number | null, pages: number, bytes: number}[], languages: {language: string | null, pages: number}[],
 *   duplicates: {kind: string, pages: number, bytes: number}[], truncated: number, soft_404: number, noindex: number, nofollow: number,
 *   newest: number | null, segments: number, segments_read: number, store: string}} Content
 */

const EVERY_S = 5;
const READING_EVERY_S = 1;
const ROWS_SHOWN = 10;
/** Rows come to the tables as long as the newest page in them is not older than this. */
const COMING_S = 300;
const KILLED = "Those of a crawl that was killed come when it goes on.";
const OTHER = "other";
const LARGEST = "SELECT url, body_bytes, content_mime_detected AS type\nFROM pages ORDER BY body_bytes DESC LIMIT 100";
const REPEATED = "SELECT duplicate_of, count(*) AS repeated\nFROM duplicates GROUP BY ALL ORDER BY repeated DESC, duplicate_of LIMIT 50";

/** @param {HTMLElement} main @param {Context} context */
export function contentScreen(main, context) {
  const [why, body] = [h("p.why"), h("div")];
  fill(main, h("header", null, h("h1", null, "Content")), why, body);
  const look = async () => {
    const found = /** @type {Content} */ (await api.content());
    renew(why, ...sentence(found, context));
    if (found.store === "none") renew(body, empty("This coordinator has no store", prose("Look at one that was started with `--store`.")));
    else if (found.pages) renew(body, figures(found), h("div.two.even", null, h("div", null, types(found), sizes(found)), h("div", null, languages(found), duplicates(found), remarkable(found))));
    else renew(body, empty(context.session.running ? "Nothing is in the tables yet" : "Nothing is in the tables", `${counted(context.live.stats?.pages ?? 0, "page")} fetched so far. ${context.session.running ? "Rows are seen within a minute of pages that are stored here." : KILLED}`));
    return found.segments_read < found.segments;
  };
  let reading = true;
  context.every(READING_EVERY_S, async () => {
    // While a large store is being read, each look goes a little further.
    if (reading) reading = await look();
  });
  context.every(EVERY_S, async () => void (reading = await look()));
}

/** How things are, before any figure. @param {Content} found @param {Context} context @returns {import("../dom.js").Child[]} */
function sentence(found, context) {
  const [first] = found.types;
  if (!first) return [];
  const twins = found.duplicates.reduce((sum, one) => sum + one.pages, 0);
  const known = found.languages.filter((one) => one.language);
  const lead = `${percent(first.pages, found.pages)} ${first.pages === 1 ? "is" : "are"} ${typeName(first.type)}`;
  const tongue = known.length === 1 ? `in ${languageName(known[0].language)}` : known.length ? `in ${counted(known.length, "language")}, mostly ${languageName(known[0].language)}` : "in no known language";
  return [h("strong", null, `${counted(found.pages, "page")}, ${size(found.bytes)}.`), ` ${lead}; the text is ${tongue}; ${twins ? `${percent(twins, found.pages)} repeat others` : "none repeats another"}.`,
    h("span.more", null, lag(found, context))];
}

/** What is not counted yet, and why. @param {Content} found @param {Context} context */
function lag(found, context) {
  if (found.segments_read < found.segments) return `Reading the store: ${count(found.segments_read)} of ${counted(found.segments, "segment")} so far.`;
  const behind = (context.live.stats?.pages ?? 0) - found.pages;
  if (behind > 0) {
    const told = `${counted(behind, "more page")} ${behind === 1 ? "was" : "were"} fetched and ${behind === 1 ? "is" : "are"} not in the tables`;
    if (!context.session.running) return `${told}. ${KILLED}`;
    // Pages may be stored elsewhere, so their rows never come: only while some come is it a matter of waiting.
    const coming = (context.live.stats?.time ?? 0) - (found.newest ?? 0) < COMING_S;
    return coming ? `${told} yet: rows are seen within a minute of their pages.` : `${told} of this store.`;
  }
  return found.newest ? `All pages up to ${clock(found.newest)}.` : "";
}

/** @param {Content} found */
function figures(found) {
  const html = found.types[0];
  const [known] = found.languages.filter((one) => one.language);
  const both = found.duplicates.reduce((sum, one) => sum + one.pages, 0);
  const [exact, near] = ["exact", "near"].map((kind) => found.duplicates.find((one) => one.kind === kind)?.pages ?? 0);
  const items = [
    ["Pages", count(found.pages), `${size(found.bytes / found.pages)} each, on average`, "#/data?question=per-minute"],
    ["Size", size(found.bytes), "without content encoding", askAt(LARGEST)],
    ["Types", count(found.types.length), `most are ${typeName(html.type)}`, "#/data?question=types"],
    ["Languages", count(found.languages.filter((one) => one.language).length), known ? `most are ${languageName(known.language)}` : "none found", "#/data?question=languages"],
    ["Duplicates", percent(both, found.pages), both ? `${short(exact)} exact, ${short(near)} near` : "none found", "#/data?question=duplicates"],
  ];
  return h("dl.figures", null, items.map(([name, value, small, href]) =>
    h("div", null, h("dt", null, name), h("dd", null, h("span", null, h("a.figure", { href }, value)), h("small", null, small)))));
}

/** @param {Content} found */
function types(found) {
  const rows = found.types.slice(0, ROWS_SHOWN).map(({ type, pages, bytes }) => ({
    label: type === OTHER ? "other types" : askLink(pagesWhere(type ? `content_mime_detected = ${quoted(type)}` : "content_mime_detected IS NULL", "title, body_bytes", "body_bytes DESC"), h("span.mono.break", null, type || "not known")),
    value: pages, small: `${size(bytes)}, ${size(bytes / pages)} each`,
  }));
  return card("Types", h("a", { href: "#/data?question=types" }, found.types.length > ROWS_SHOWN ? `All ${count(found.types.length)}` : "As a table"), bars("Type", "Pages", rows, { shares: true }));
}

/** @param {Content} found */
function languages(found) {
  const sorted = [...found.languages.filter((one) => one.language), ...found.languages.filter((one) => !one.language)];
  const rows = [...sorted.slice(0, ROWS_SHOWN), ...sorted.slice(ROWS_SHOWN).filter((one) => !one.language)].map(({ language, pages }) => ({
    label: askLink(pagesWhere(language ? `content_languages = ${quoted(language)}` : "content_languages IS NULL", "title, content_languages AS language"), language ? languageName(language) : "uncertain"),
    value: pages, small: language ? "" : "too little text, or several languages",
  }));
  return card("Languages", h("a", { href: "#/data?question=languages" }, found.languages.length > ROWS_SHOWN ? `All ${count(found.languages.length)}` : "As a table"), bars("Language", "Pages", rows, { shares: true }));
}

/** @param {Content} found */
function sizes(found) {
  const rows = found.sizes.map(({ from_bytes, to_bytes, pages, bytes }) => {
    const where = `body_bytes >= ${from_bytes}${to_bytes === null ? "" : ` AND body_bytes < ${to_bytes}`}`;
    const words = to_bytes === null ? `${size(from_bytes)} and more` : from_bytes ? `${size(from_bytes)} to ${size(to_bytes)}` : `under ${size(to_bytes)}`;
    return { label: pages ? askLink(pagesWhere(where, "body_bytes, content_mime_detected AS type", "body_bytes DESC"), words) : h("span.soft", null, words), value: pages, small: pages ? `${size(bytes)} in all` : "" };
  });
  return card("Sizes", askLink(LARGEST, "The largest"), bars("Size of a page", "Pages", rows, { shares: true }));
}

/** @param {Content} found */
function duplicates(found) {
  const parts = Object.fromEntries(found.duplicates.map((one) => [one.kind, one]));
  const [exact, near] = [parts.exact ?? { pages: 0, bytes: 0 }, parts.near ?? { pages: 0, bytes: 0 }];
  const shown = bar("Pages", [
    { tone: "accent", count: found.pages - exact.pages - near.pages, words: "of their own" },
    { tone: "moved", count: near.pages, words: "nearly the same as another", href: askAt(twins("near")) },
    { tone: "refused", count: exact.pages, words: "the same as another", href: askAt(twins("exact")) },
  ]);
  const rows = [
    ["The same content as an earlier page", exact, "stored once: the copies have no body in the archive", "exact"],
    ["Nearly the same text", near, "stored in full, and marked", "near"],
  ].map(([words, one, small, kind]) => {
    const { pages, bytes } = /** @type {{pages: number, bytes: number}} */ (one);
    return [h("span", null, pages ? askLink(twins(String(kind)), String(words)) : String(words), h("small.why", null, String(small))), count(pages), size(bytes)];
  });
  const columns = [{ title: "Pages that repeat others" }, { title: "Pages", kind: "n" }, { title: "Size", kind: "n" }];
  return card("Duplicates", askLink(REPEATED, "What repeats most"), shown, table("Duplicates", columns, rows));
}

/** @param {string} kind */
const twins = (kind) => `SELECT url, duplicate_of${kind === "near" ? ", duplicate_overlap AS overlap" : ""}\nFROM duplicates WHERE duplicate_kind = '${kind}'\nORDER BY url LIMIT 100`;

/** @param {Content} found */
function remarkable(found) {
  const rows = /** @type {[string, string, number, string][]} */ ([
    ["Cut off", "the body is not all there: it broke off, or was too long", found.truncated, pagesWhere("content_truncated IS NOT NULL", "content_truncated AS why, body_bytes")],
    ["Missing, by its own words", "a page that says it does not exist, with status 200", found.soft_404, pagesWhere("soft_404")],
    ["Not to be indexed", "the page asks for it (noindex)", found.noindex, pagesWhere("noindex")],
    ["Links not to be followed", "the page asks for it (nofollow)", found.nofollow, pagesWhere("nofollow")],
  ]).filter(([, , pages]) => pages > 0);
  if (!rows.length) return null;
  return card("Worth a look", null, table("Pages worth a look", [{ title: "Pages" }, { title: "Count", kind: "n" }], rows.map(([words, small, pages, sql]) =>
    [h("span", null, askLink(sql, words), h("small.why", null, small)), count(pages)])));
}

/** @param {string} type */
const typeName = (type) => /** @type {Record<string, string>} */ ({ "text/html": "HTML", "application/pdf": "PDF", "application/xml": "XML", "text/plain": "plain text" })[type] ?? (type || "of no known type");

const names = new Intl.DisplayNames(["en"], { type: "language" });

/** @param {string | null} code ISO 639-3 */
export function languageName(code) {
  if (!code) return "uncertain";
  try {
    return names.of(code) ?? code;
  } catch {
    return code;
  }
}
