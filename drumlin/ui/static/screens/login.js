/** Logging in: a token is pasted once and becomes a cookie; it is kept nowhere else. */

import { CallError } from "../api.js";
import { fill, h, prose } from "../dom.js";

/**
 * @param {HTMLElement} main @param {string} way `token` or `code` @param {CallError | null} error why the last session ended
 * @param {(token: string) => Promise<void>} open
 */
export function logInScreen(main, way, error, open) {
  const brand = h("p.brand", null, h("img", { src: "ui/icon.svg", alt: "", width: 28, height: 28 }), "drumlin");
  if (way === "code" || error?.code === "code_used") {
    const said = error ? `${error.message} ${error.hint}` : "This page belongs to whoever started the crawl.";
    fill(main, brand, h("h1", null, "Open it from the terminal"), h("p", null, prose(said)),
      h("p.soft", null, prose("The address that `drumlin crawl` shows opens this page in one browser, once.")));
    return;
  }
  const alert = h("p.error", { role: "alert" }, error ? ["Your session has ended: ", ...prose(error.message)] : null);
  const box = /** @type {HTMLInputElement} */ (
    h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true, autofocus: true })
  );
  const go = /** @type {HTMLButtonElement} */ (h("button.primary", { type: "submit" }, "Log in"));
  const form = h("form", null, h("div.field", null, h("label", { for: "token" }, "Token"), box), alert, go);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go.disabled = true;
    open(box.value.trim()).catch((wrong) => {
      // The hint for a token that is not valid is for nodes.
      const hint = wrong instanceof CallError && wrong.code !== "invalid_token" ? wrong.hint : "";
      fill(alert, ...prose(`${wrong.message} ${hint}`));
      go.disabled = false;
      box.select();
    });
  });
  fill(main, brand, h("h1", null, "Log in"),
    h("p", null, "Paste a viewer's token to look, or an operator's to steer."), form,
    h("p.soft", null, prose("`drumlin tokens create --role viewer` makes one. It is sent once and becomes a cookie that ends with it.")));
  box.focus();
}
