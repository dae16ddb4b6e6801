/** Links to the Data screen, with a question that is asked when it opens; and how texts of the web get into SQL. */

import { h } from "./dom.js";

/** A text as SQL writes it. @param {string} value */
export const quoted = (value) => `'${value.replaceAll("'", "''")}'`;

/** Where a question is asked. @param {string} sql */
export const askAt = (sql) => `#/data?sql=${encodeURIComponent(sql)}`;

/** A link that asks a question. @param {string} sql @param {import("./dom.js").Child} text */
export const askLink = (sql, text) => h("a", { href: askAt(sql) }, text);

const SHOWN = 100;

/** Pages that fit a condition, with what is worth seeing of them. @param {string} where @param {string} [more] @param {string} [order] */
export const pagesWhere = (where, more = "title, body_bytes", order = "url") =>
  `SELECT url, ${more}\nFROM pages WHERE ${where}\nORDER BY ${order} LIMIT ${SHOWN}`;
