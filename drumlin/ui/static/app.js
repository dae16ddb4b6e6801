/** Starts the page: who looks, what is live, and which screen is shown. Screens are named by what stands behind the `#`. */

import { CallError, api, session, whenSessionEnds } from "./api.js";
import { toast } from "./dialog.js";
import { empty, fill, h, prose, say } from "./dom.js";
import { clock, count } from "./format.js";
import { Live } from "./live.js";
import { auditScreen } from "./screens/audit.js";
import { contentScreen } from "./screens/content.js";
import { dataScreen } from "./screens/data.js";
import { failuresScreen } from "./screens/failures.js";
import { hostScreen } from "./screens/host.js";
import { hostsScreen } from "./screens/hosts.js";
import { logInScreen } from "./screens/login.js";
import { nodesScreen } from "./screens/nodes.js";
import { overviewScreen } from "./screens/overview.js";
import { settingsScreen } from "./screens/settings.js";
import { urlsScreen } from "./screens/urls.js";

/** @typedef {import("./api.js").Session} Session */

/**
 * What a screen may use.
 * @typedef {object} Context
 * @property {Live} live
 * @property {Session} session
 * @property {boolean} operates whether the looker may change things
 * @property {string} name the crawl's name
 * @property {Record<string, string>} query what stands behind the `?`
 * @property {(seconds: number, work: () => Promise<void>) => void} every does something now and again while the screen is shown
 * @property {(event: string, listener: () => void) => void} on listens while the screen is shown
 * @property {(work: () => void) => void} leaving is done when the screen is left
 */

/** @typedef {(main: HTMLElement, context: Context, part: string) => void} Screen */

/** @type {{name: string, title: string, screen: Screen, count?: (live: Live) => number}[]} */
const SCREENS = [
  { name: "", title: "Overview", screen: overviewScreen },
  { name: "hosts", title: "Hosts", screen: hostsScreen, count: (live) => hostsNow(live) },
  { name: "urls", title: "URLs", screen: urlsScreen },
  { name: "nodes", title: "Nodes", screen: nodesScreen, count: (live) => live.stats?.nodes.active ?? 0 },
  { name: "failures", title: "Failures", screen: failuresScreen, count: (live) => live.stats?.totals.dead ?? 0 },
  { name: "content", title: "Content", screen: contentScreen },
  { name: "data", title: "Data", screen: dataScreen },
  { name: "settings", title: "Settings", screen: settingsScreen },
  { name: "audit", title: "Audit", screen: auditScreen },
];
const CODE = "#code=";
const NOWHERE = { name: "nowhere", title: "No such screen", screen: nowhere };

/** @type {Screen} */
function nowhere(main) {
  fill(main, h("header", null, h("h1", null, "No such screen")),
    empty("Nothing is shown at this address", [h("a", { href: "#/" }, "The overview"), " says how the crawl is."]));
}

/** @param {Live} live */
function hostsNow(live) {
  const totals = live.stats?.totals;
  return totals ? totals.hosts_ready + totals.hosts_waiting + totals.hosts_leased : 0;
}

/** What an address says, as far as it can be read: people type addresses, too. @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @param {Session} who */
function nameOf(who) {
  const [first, ...others] = who.hosts;
  if (!first) return `Crawl ${who.crawl.slice(0, 8)}`;
  return who.seeds > 1 ? `${first} and ${others.length === 1 && who.seeds === 2 ? others[0] : `${count(who.seeds - 1)} more`}` : first;
}

class App {
  constructor() {
    this.root = /** @type {HTMLElement} */ (document.getElementById("app"));
    this.live = new Live();
    /** @type {Session | null} */
    this.session = null;
    /** @type {(() => void)[]} */
    this.leaving = [];
    this.main = h("main", { id: "main", tabindex: "-1" });
    this.banner = h("div.banners", { role: "status" });
    this.link = h("span.link", null);
    this.shown = "";
    this.moved = false;
  }

  async start() {
    whenSessionEnds((error) => this.logIn(error));
    addEventListener("hashchange", () => this.show());
    document.querySelector(".skip")?.addEventListener("click", (event) => {
      // What stands behind the `#` names the screen, so the link must not change it.
      event.preventDefault();
      document.getElementById("main")?.focus();
    });
    this.live.addEventListener("link", () => {
      // What was before this page, or while it had no connection, is known to the coordinators.
      if (this.live.link === "live") api.history("hour").then((history) => this.live.remember(history)).catch(() => {});
    });
    this.live.addEventListener("lost", () => void this.askWho());
    for (const name of ["link", "stats"]) this.live.addEventListener(name, () => this.tellAround());
    await this.enter();
  }

  /** Find out who looks; a code in the address becomes a session, and leaves the address. */
  async enter() {
    const code = location.hash.startsWith(CODE) ? location.hash.slice(CODE.length) : "";
    if (code) history.replaceState(null, "", location.pathname);
    try {
      let who = await session.get();
      if (!who.role && code) who = await session.open({ code });
      if (who.role) this.open(who);
      else this.logIn(null, who);
    } catch (wrong) {
      const error = /** @type {CallError} */ (wrong);
      if (error.status === 401) this.logIn(error);
      else this.unreachable(error);
    }
  }

  /** A stream of events breaks off without a reason, which may be that the session has ended. */
  async askWho() {
    const who = await session.get().catch(() => null);
    const over = new CallError(401, "session_ended", "its time is over, or its token was revoked.", "");
    if (this.session && who && !who.role) this.logIn(who.log_in === "token" ? over : null, who);
  }

  /** @param {CallError} error */
  unreachable(error) {
    const again = h("button.primary", { onclick: () => void this.enter() }, "Try again");
    fill(this.root, h("main.alone", { id: "main" }, h("h1", null, "No answer"), h("p", null, prose(`${error.message} ${error.hint}`)), again));
  }

  /** @param {CallError | null} error @param {Session} [who] */
  logIn(error, who) {
    this.live.stop();
    this.leave();
    this.session = null;
    document.title = "Log in · drumlin";
    const main = h("main.alone", { id: "main" });
    fill(this.root, main);
    logInScreen(main, who?.log_in ?? "token", error, async (token) => this.open(await session.open({ token })));
  }

  /** @param {Session} who */
  open(who) {
    this.session = who;
    this.live.endsWithCrawl = who.log_in === "code";
    this.live.start();
    fill(this.root, h("div.shell", null, this.nav(who), h("div.page", null, this.banner, this.main)));
    this.show();
    this.tellAround();
  }

  /** @param {Session} who */
  nav(who) {
    const items = SCREENS.map((one) => {
      const many = one.count && h("span.count", { "data-count": one.name });
      return h("a", { href: `#/${one.name}`, "data-screen": one.name }, one.title, many);
    });
    const leave = who.log_in === "token" && who.role && h("button.plain", { onclick: () => void this.logOut() }, "Log out");
    const role = h("span", { title: who.role === "operator" ? "You may look and change things" : "You may look" }, who.role);
    return h("nav", { "aria-label": "Screens" },
      h("a.brand", { href: "#/" }, h("img", { src: "ui/icon.svg", alt: "", width: 20, height: 20 }), "drumlin"),
      h("div.items", null, items), h("div.foot", null, this.link, role, leave));
  }

  async logOut() {
    const who = await session.end().catch(() => undefined);
    this.logIn(null, who);
  }

  leave() {
    for (const work of this.leaving.splice(0)) work();
  }

  show() {
    if (!this.session) return;
    const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const [name, ...rest] = path.split("/");
    const found = SCREENS.find((one) => one.name === name) ?? NOWHERE;
    const part = decoded(rest.join("/"));
    const screen = found.name === "hosts" && part ? hostScreen : found.screen;
    const again = this.shown === `${found.name}/${part}`;
    this.shown = `${found.name}/${part}`;
    this.leave();
    document.title = `${part || found.title} · ${nameOf(this.session)} · drumlin`;
    for (const link of this.root.querySelectorAll("nav [data-screen]")) {
      const current = link.getAttribute("data-screen") === found.name;
      if (current) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      if (current) link.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    fill(this.main);
    screen(this.main, this.context(Object.fromEntries(new URLSearchParams(query))), part);
    if (again) return;
    scrollTo(0, 0);
    // Whoever hears the page should hear the new screen, not the link that led there.
    if (this.moved) this.main.focus({ preventScroll: true });
    this.moved = true;
  }

  /** @param {Record<string, string>} query @returns {Context} */
  context(query) {
    const who = /** @type {Session} */ (this.session);
    return {
      live: this.live, session: who, operates: who.role === "operator", name: nameOf(who), query,
      every: (seconds, work) => this.every(seconds, work),
      on: (event, listener) => {
        this.live.addEventListener(event, listener);
        this.leaving.push(() => this.live.removeEventListener(event, listener));
      },
      leaving: (work) => this.leaving.push(work),
    };
  }

  /** @param {number} seconds @param {() => Promise<void>} work */
  every(seconds, work) {
    let left = false;
    let timer = 0;
    const turn = async () => {
      if (!document.hidden && this.live.link !== "ended") {
        await work().catch((wrong) => wrong instanceof CallError || toast(String(wrong)));
      }
      if (!left) timer = window.setTimeout(turn, seconds * 1000);
    };
    void turn();
    this.leaving.push(() => {
      left = true;
      clearTimeout(timer);
    });
  }

  /** What stands around every screen: the connection, troubles, counts. */
  tellAround() {
    const { live } = this;
    const stands = this.session?.running === false && live.link === "live";
    const words = stands ? "At rest" : { starting: "Connecting", live: "Live", lost: "Reconnecting", ended: "Ended" }[live.link] ?? "";
    this.link.className = `link ${stands ? "" : live.link}`;
    say(this.link, words);
    for (const one of SCREENS) {
      const place = one.count && this.root.querySelector(`[data-count="${one.name}"]`);
      if (place && one.count) say(place, one.count(live) ? count(one.count(live)) : "");
    }
    const key = `${live.link} ${live.stats?.troubles.map((one) => one.code + one.message).join()}`;
    if (this.banner.dataset.key === key) return;
    this.banner.dataset.key = key;
    fill(this.banner, banners(live));
  }
}

/** @param {Live} live */
function banners(live) {
  const since = live.heard ? ` The figures are from ${clock(live.heard)}.` : "";
  if (live.link === "ended") {
    return [h("p.banner.quiet", null, h("strong", null, "The run has ended"), " and its page with it. What you see are its last figures. ",
      ...prose("`drumlin open` shows it again; the same `drumlin crawl` command goes on if something is left."))];
  }
  const lost = live.link === "lost" && h("p.banner.warn", null, h("strong", null, "No connection to the coordinator."), ` Trying again.${since}`);
  const troubles = (live.stats?.troubles ?? []).map((one) =>
    h("p.banner.bad", null, h("strong", null, one.message), " ", ...prose(one.hint),
      one.since ? ` Since ${clock(one.since)}.` : ""));
  return [lost, ...troubles].filter(Boolean);
}

void new App().start();
