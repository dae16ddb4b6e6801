/**
 * The stored copy of a page: its text, its source, its headers, or the page itself in a frame in which nothing runs and
 * nothing is loaded. What websites wrote is put in as text; the frame has an origin of its own.
 */

import { CallError, api, bodyOf } from "../api.js";
import { card, fill, h, prose, urlLink } from "../dom.js";
import { count, moment, size } from "../format.js";
import { languageName } from "./content.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {{url: string, fetched: number, status_code: number, record_id: string, warc_filename: string, warc_record_offset: number, headers: string, type: string, charset: string, language: string, title: string, text: string | null, source: string | null, cut: boolean, body_bytes: number, truncated: string, same_as: string, shown_as: string | null}} Copy */

const VIEWS = /** @type {Record<string, string>} */ ({ text: "Text", source: "Source", page: "Page", headers: "Headers" });
const CUT = /** @type {Record<string, string>} */ ({ length: "it was longer than is kept", disconnect: "the connection broke", unspecified: "the body ended too early" });

/** Shows the copy of a page, once. @param {HTMLElement} place @param {Context} context @param {string} url */
export async function showCopy(place, context, url) {
  try {
    const copy = /** @type {Copy} */ (await api.capture(url));
    const views = viewsOf(copy);
    fill(place, copyCard(copy, url, views.includes(context.query.view) ? context.query.view : views[0], views));
  } catch (wrong) {
    if (!(wrong instanceof CallError)) throw wrong;
    if (wrong.code === "no_store" || wrong.code === "copy_unreadable") fill(place, card("Stored copy", null, h("p.soft", null, ...prose(`${wrong.message} ${wrong.hint}`))));
  }
}

/** The ways in which a copy can be shown. What has a source but no row yet will have a text. @param {Copy} copy @returns {string[]} */
function viewsOf(copy) {
  const has = /** @type {Record<string, boolean>} */ ({
    text: copy.text === null ? copy.source !== null : copy.text.trim() !== "", source: copy.source !== null, page: copy.shown_as !== null, headers: true,
  });
  const views = Object.keys(VIEWS).filter((name) => has[name]);
  return copy.text === null && views[0] === "text" ? [...views.slice(1, -1), "text", "headers"] : views;
}

/** @param {Copy} copy @param {string} url @param {string} view @param {string[]} views */
function copyCard(copy, url, view, views) {
  const tabs = h("div.tabs", { role: "group", "aria-label": "How to show the copy" }, views.map((name) =>
    h("a", { href: `#/urls?url=${encodeURIComponent(url)}&view=${name}`, "aria-current": name === view ? "true" : null }, name === "page" && isPicture(copy) ? "Picture" : VIEWS[name])));
  const file = h("a", { href: bodyOf(url, "file"), download: "capture" }, "Download");
  return card("Stored copy", file, h("p.copied", null, h("strong.break", null, copy.title || (copy.text === null && copy.source !== null ? "Not in the tables yet" : "Without a title")), h("small.why", null, facts(copy))), tabs, shown(copy, url, view));
}

/** @param {Copy} copy */
const isPicture = (copy) => copy.shown_as?.startsWith("image/") ?? false;

/** @param {Copy} copy */
function facts(copy) {
  const parts = [moment(copy.fetched), `status ${copy.status_code}`, copy.type || "no known type", copy.charset, copy.language && languageName(copy.language), size(copy.body_bytes)];
  return [parts.filter(Boolean).join(" · "), copy.truncated && ` · cut off: ${CUT[copy.truncated] ?? copy.truncated}`, copy.same_as && h("span", null, " · the same content as ", urlLink(copy.same_as))].filter(Boolean);
}

/** @param {Copy} copy @param {string} url @param {string} view */
function shown(copy, url, view) {
  if (view === "headers") return h("pre.copy", { tabindex: "0" }, copy.headers);
  if (view === "page") {
    if (isPicture(copy)) return h("div.picture", null, h("img", { src: bodyOf(url, "shown"), alt: "The stored picture" }));
    const frame = h("iframe.copy", { src: bodyOf(url, "shown"), sandbox: "", referrerpolicy: "no-referrer", title: "The stored page" });
    return h("div", null, frame, h("p.told", null, "Nothing in it runs, nothing is loaded, and its links lead nowhere: no scripts, no styles, no pictures of its own."));
  }
  const text = view === "text" ? copy.text : copy.source;
  if (!text?.trim()) return h("p.soft.nothing", null, text === null ? "Its text is in the tables within a minute." : "The body is empty.");
  return h("div", null, h(`pre.copy${view === "text" ? ".prose" : ""}`, { tabindex: "0", lang: view === "text" && copy.language ? copy.language : null }, text),
    copy.cut && h("p.told", null, `The first ${count(text.length)} characters; the file has all of it.`));
}
