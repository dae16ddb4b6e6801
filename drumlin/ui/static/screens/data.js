/** Questions in SQL over what is stored: ready ones and one's own, the answer as a table and a chart, and as a file. */

import { answerChart, answerTable, csv, json } from "../answers.js";
import { CallError, api } from "../api.js";
import { toast } from "../dialog.js";
import { card, empty, fill, h, prose } from "../dom.js";
import { count, counted, duration } from "../format.js";
import { askAt, askLink } from "../questions.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {import("../answers.js").Answer} Answer */
/** @typedef {{questions: {name: string, asks: string, sql: string}[], names: {name: string, meaning: string, columns: Record<string, string>}[], seconds_max: number, rows_max: number}} About */

const ASKED = 1000;
const SHOWN = 100;
const LINES_MIN = 4;
const LINES_MAX = 16;
const BEGIN = "SELECT url, title, fetch_status, body_bytes\nFROM pages\nORDER BY fetch_time DESC LIMIT 20";

/** @param {HTMLElement} main @param {Context} context */
export async function dataScreen(main, context) {
  const [ready, result, names] = [h("div"), h("div", { "aria-live": "polite" }), h("div")];
  const given = context.query.sql ?? "";
  const editor = box(given || BEGIN);
  const run = /** @type {HTMLButtonElement} */ (h("button.primary", { type: "submit", title: "Ctrl+Enter" }, "Ask"));
  const form = h("form.question", null, h("label.hidden", { for: "sql" }, "A question in SQL"), editor,
    h("div.row.apart", null, h("p.hint", { id: "sql-hint" }, "DuckDB's SQL, one SELECT. It can read the tables, and change nothing."), run));
  fill(main, h("header", null, h("h1", null, "Data")), h("div.two.ask", null, h("section.card", null, form), ready), result, names);
  const asking = new Asking(result, run, context);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    asking.press(editor.value.trim());
  });
  editor.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) /** @type {HTMLFormElement} */ (form).requestSubmit();
  });
  try {
    const about = /** @type {About} */ (await api.questions());
    const chosen = about.questions.find((one) => one.name === context.query.question);
    fill(ready, questionsCard(about, chosen?.name ?? ""));
    ready.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    fill(names, namesCard(about));
    if (chosen) write(editor, chosen.sql);
    if (chosen || given) await asking.ask(chosen?.sql ?? given);
    else fill(result, empty("Ask what is stored", prose("Choose a question, or write one. Each page has a row in `pages`, each link in `links`, each try in `fetches`.")));
  } catch (wrong) {
    if (!(wrong instanceof CallError)) throw wrong;
    fill(result, empty(wrong.message, prose(wrong.hint)));
  }
}

/** @param {string} sql */
function box(sql) {
  const editor = /** @type {HTMLTextAreaElement} */ (h("textarea", { id: "sql", spellcheck: "false", autocomplete: "off", autocapitalize: "off", maxlength: 20000, "aria-describedby": "sql-hint", required: true }));
  editor.addEventListener("input", () => fit(editor));
  write(editor, sql);
  return editor;
}

/** @param {HTMLTextAreaElement} editor @param {string} sql */
function write(editor, sql) {
  editor.value = sql;
  fit(editor);
}

/** As many lines as there are, within reason. @param {HTMLTextAreaElement} editor */
function fit(editor) {
  editor.rows = Math.min(LINES_MAX, Math.max(LINES_MIN, editor.value.split("\n").length + 1));
}

/** @param {About} about @param {string} chosen */
function questionsCard(about, chosen) {
  const items = about.questions.map((one) => h("li", null, h("a", { href: `#/data?question=${one.name}`, "aria-current": one.name === chosen ? "true" : null }, one.asks)));
  return card("Ready questions", null, h("ul.ready", null, items));
}

/** @param {About} about */
function namesCard(about) {
  const items = about.names.map((one) => {
    const columns = Object.entries(one.columns).flatMap(([name, meaning]) => [h("dt.mono", null, name), h("dd", null, ...prose(meaning))]);
    const look = askLink(`FROM ${one.name} LIMIT 20`, "Show some rows");
    return h("details", null, h("summary", null, h("span.mono", null, one.name), h("span.meaning", null, one.meaning.replaceAll("`", ""))),
      h("p.soft", null, look), h("dl.facts", null, columns));
  });
  return card("What can be asked", null, h("div.names", null, items));
}

/** One question at a time: asked, stopped, shown, and given as a file. */
class Asking {
  /** @param {HTMLElement} result @param {HTMLButtonElement} button @param {Context} context */
  constructor(result, button, context) {
    this.result = result;
    this.button = button;
    /** @type {AbortController | null} */
    this.running = null;
    this.close = () => {};
    context.leaving(() => {
      this.stop();
      this.close();
    });
  }

  stop() {
    this.running?.abort();
    this.running = null;
  }

  /** The button asks, or stops what was asked. @param {string} sql */
  press(sql) {
    if (this.running) this.stop();
    else if (askAt(sql) !== location.hash) location.hash = askAt(sql);
    else void this.ask(sql);
  }

  /** @param {string} sql */
  async ask(sql) {
    const turn = (this.running = new AbortController());
    fill(this.button, "Stop");
    this.result.setAttribute("aria-busy", "true");
    fill(this.result, h("p.asking", null, "Asking the tables…"));
    try {
      const answer = /** @type {Answer} */ (await api.ask(sql, ASKED, turn.signal));
      this.show(answer, sql);
    } catch (wrong) {
      if (turn.signal.aborted) fill(this.result, empty("Stopped", "The question was given up."));
      else if (wrong instanceof CallError) fill(this.result, failed(wrong));
      else throw wrong;
    } finally {
      if (this.running === turn) this.running = null;
      fill(this.button, "Ask");
      this.result.removeAttribute("aria-busy");
    }
  }

  /** @param {Answer} answer @param {string} sql */
  show(answer, sql) {
    this.close();
    const chart = answerChart(answer);
    this.close = chart?.close ?? (() => {});
    const many = answer.complete ? counted(answer.rows.length, "row") : `The first ${counted(answer.rows.length, "row")}`;
    const files = answer.rows.length > 0 && h("span.row", null, this.file("CSV", "text/csv", csv, answer, sql), this.file("JSON", "application/json", json, answer, sql));
    const parts = chart && [h("div.drawn", null, chart.node)];
    const rows = answer.rows.length ? this.rows(answer) : [empty("No rows", "Nothing that is stored fits.")];
    fill(this.result, card(`${many} in ${duration(answer.seconds)}`, files, parts, rows));
  }

  /** @param {Answer} answer */
  rows(answer) {
    const place = h("div");
    const draw = (/** @type {number} */ shown) => fill(place, answerTable(answer, shown),
      answer.rows.length > shown && h("button.more", { onclick: () => draw(answer.rows.length) }, `Show all ${count(answer.rows.length)}`),
      !answer.complete && answer.rows.length <= shown && h("p.told", null, "There are more rows. The files have up to 100,000; a LIMIT or a sum may be what you want."));
    draw(SHOWN);
    return [place];
  }

  /**
   * A button that gives the whole answer as a file.
   * @param {string} name @param {string} type @param {(answer: Answer) => string} written @param {Answer} answer @param {string} sql
   */
  file(name, type, written, answer, sql) {
    const button = /** @type {HTMLButtonElement} */ (h("button.small", { "aria-label": `Download as ${name}`, onclick: () => void give() }, `↓ ${name}`));
    const give = async () => {
      button.disabled = true;
      try {
        const whole = answer.complete ? answer : /** @type {Answer} */ (await api.ask(sql, 100_000));
        save(new Blob([written(whole)], { type }), `answer.${name.toLowerCase()}`);
        if (!whole.complete) toast(`The file has the first ${counted(whole.rows.length, "row")}.`);
      } catch (wrong) {
        toast(wrong instanceof CallError ? wrong.message : String(wrong));
      } finally {
        button.disabled = false;
      }
    };
    return button;
  }
}

/** What is not there is no fault of the question. @param {CallError} wrong */
const failed = (wrong) => wrong.status === 409 ? empty(wrong.message, prose(wrong.hint)) : h("section.card.failed", { role: "alert" }, h("h2", null, wrong.code === "bad_sql" ? "This cannot be asked" : "No answer"), h("p.break", null, wrong.message), wrong.hint && h("p.soft", null, ...prose(wrong.hint)));

/** @param {Blob} content @param {string} name */
function save(content, name) {
  const url = URL.createObjectURL(content);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  URL.revokeObjectURL(url);
}
