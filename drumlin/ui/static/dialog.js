/** Asks once before something is changed, says in numbers what will happen, and says what came of it. */

import { CallError } from "./api.js";
import { fill, h, prose } from "./dom.js";

/**
 * @typedef {object} Question
 * @property {string} title what will be done, as a question
 * @property {import("./dom.js").Child | import("./dom.js").Child[]} text what that means, in numbers
 * @property {string} verb the word on the button
 * @property {boolean} [danger] whether it cannot be undone
 * @property {{label: string, value: string, hint?: string, kind?: string}} [field] something to type
 * @property {(value: string) => string} [means] says what a typed value means; throws an Error if it means nothing
 * @property {(value: string, progress: (text: string) => void) => Promise<string>} act does it, and says what came of it
 */

/** @param {Question} question */
export function ask(question) {
  const says = h("p.means", { role: "status" });
  const error = h("p.error", { role: "alert" });
  const field = question.field && input(question, says);
  const go = /** @type {HTMLButtonElement} */ (h(`button.primary${question.danger ? ".danger" : ""}`, { type: "submit" }, question.verb));
  const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const form = h("form", { method: "dialog" },
    h("h2", { id: "asked" }, question.title), h("div.text", null, question.text), field, says, error,
    h("div.buttons", null, cancel, go));
  const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { "aria-labelledby": "asked" }, form));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const typed = /** @type {HTMLInputElement | null} */ (form.querySelector("input"))?.value ?? "";
    void act(question, typed, go, error, says, dialog);
  });
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  const box = form.querySelector("input");
  // Whoever types replaces what is suggested.
  if (box) box.select();
  else go.focus();
}

/** @param {Question} question @param {HTMLElement} says */
function input(question, says) {
  const { label, value, hint, kind } = /** @type {NonNullable<Question["field"]>} */ (question.field);
  const box = /** @type {HTMLInputElement} */ (
    h("input", { id: "typed", type: "text", value, autocomplete: "off", inputmode: kind, "aria-describedby": "typed-hint" })
  );
  const tell = () => {
    try {
      fill(says, question.means?.(box.value) ?? "");
      box.setCustomValidity("");
    } catch (wrong) {
      fill(says, /** @type {Error} */ (wrong).message);
    }
  };
  box.addEventListener("input", tell);
  queueMicrotask(tell);
  return h("div.field", null, h("label", { for: "typed" }, label), box, h("p.hint", { id: "typed-hint" }, hint));
}

/**
 * @param {Question} question @param {string} typed @param {HTMLButtonElement} go @param {HTMLElement} error
 * @param {HTMLElement} says @param {HTMLDialogElement} dialog
 */
async function act(question, typed, go, error, says, dialog) {
  fill(error);
  try {
    question.means?.(typed);
    go.disabled = true;
    const came = await question.act(typed, (text) => fill(says, text));
    dialog.close();
    toast(came);
  } catch (wrong) {
    const hint = wrong instanceof CallError && wrong.hint ? ` ${wrong.hint}` : "";
    fill(error, ...prose(`${/** @type {Error} */ (wrong).message}${hint}`));
  } finally {
    go.disabled = false;
  }
}

const SHOWN_MS = 6000;

/** Says for a while what came of an action. @param {string} text */
export function toast(text) {
  let place = document.getElementById("toasts");
  if (!place) {
    place = h("div", { id: "toasts", role: "status" });
    document.body.append(place);
  }
  const said = h("p", null, text);
  place.append(said);
  setTimeout(() => said.remove(), SHOWN_MS);
}
