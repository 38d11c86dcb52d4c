// The page: which view is open, what is asked for, and what is said when the driver is silent.

import { NoAnswer, application, streaming } from "./api.js";
import { BatchView } from "./batch_view.js";
import { BatchesView } from "./batches_view.js";
import { el, set, setText } from "./dom.js";
import { clock, count, duration, zone } from "./format.js";
import { Header } from "./header.js";
import { LagView } from "./lag_view.js";
import { ListView } from "./lists.js";
import { Overview } from "./overview.js";
import { Poller } from "./poll.js";
import { kindOf, wordOf } from "./state.js";

const TABS = [
  ["", "Overview"],
  ["batches", "Batches"],
  ["lag", "Lag"],
  ["receivers", "Receivers"],
  ["decisions", "Decisions"],
  ["ledger", "Ledger"],
  ["settings", "Settings"],
];
const ALWAYS = [
  { key: "statistics", path: "statistics" },
  { key: "last", path: "batches?status=completed&status=failed&limit=1" },
];

const $ = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));

class Page {
  constructor() {
    this.app = null;
    /** @type {Map<string, any>} */
    this.answers = new Map();
    /** @type {Map<string, NoAnswer>} */
    this.failures = new Map(); // why an answer is older than the others, or is missing
    this.header = new Header($("headline"));
    this.tabs = TABS.map(([name, title]) =>
      el("a", { href: `#/${name}`, "data-tab": name }, title, el("span", { class: "badge", hidden: true })),
    );
    $("tabs").replaceChildren(...this.tabs);
    this.poller = new Poller(
      (path) => this.ask(path),
      () => [...ALWAYS, ...this.view.wants()],
      (answers, failures) => this.show(answers, failures),
      (contact) => this.tell(contact),
    );
    addEventListener("hashchange", () => this.open());
    this.open();
  }

  /** Open the view that the address names. */
  open() {
    if (this.view && !location.hash.startsWith("#/") && location.hash) return; // the link that skips to the content
    const [name = "", rest = ""] = location.hash.replace(/^#\/?/, "").split("/");
    /** @type {any} */
    this.view = this.viewOf(name, rest);
    this.answers = new Map([...this.answers].filter(([key]) => key === "statistics" || key === "last"));
    this.failures.clear();
    $("view").replaceChildren(this.view.node);
    for (const tab of this.tabs) set(tab, { "aria-current": tab.dataset.tab === (name === "batch" ? "batches" : name) ? "page" : null });
    this.draw();
    scrollTo(0, 0);
    this.poller.wake();
  }

  /** @param {string} name @param {string} rest */
  viewOf(name, rest) {
    if (name === "batch" && /^\d{1,15}$/.test(rest)) return new BatchView(Number(rest));
    if (name === "batches") return new BatchesView(rest, () => this.poller.wake());
    if (name === "lag") return new LagView();
    if (["receivers", "decisions", "ledger", "settings"].includes(name)) return new ListView(name);
    return new Overview();
  }

  /** @param {string} path */
  async ask(path) {
    const asked = (this.app ??= await application());
    try {
      return await streaming(asked.id, path);
    } catch (failure) {
      if (!(failure instanceof NoAnswer && failure.status === 404)) throw failure;
      const now = await application();
      if (now.id === asked.id) throw failure;
      this.follow(now);
      return streaming(now.id, path);
    }
  }

  /** Another driver has the place of the one that was shown. @param {{id: string, name: string}} app */
  follow(app) {
    this.app = app;
    this.answers.clear();
    this.failures.clear();
    this.poller.forget();
  }

  /** @param {Map<string, any>} answers @param {Map<string, NoAnswer>} failures */
  show(answers, failures) {
    for (const [key, value] of answers) {
      this.answers.set(key, value);
      this.failures.delete(key);
    }
    for (const [key, failure] of failures) this.failures.set(key, failure);
    const s = this.answers.get("statistics");
    setText($("application"), this.app?.name ?? "kstream");
    this.header.update(s, (this.answers.get("last") ?? [])[0]);
    this.badges(s);
    this.draw();
    document.title = `${wordOf(kindOf(s))} · ${this.app?.name ?? "kstream"}`.slice(0, 200);
    setText($("footer"), `kstream ${s.version} · times are of ${zone()}`);
  }

  /** Draw the open view. What is wrong with it is said above it, and stops nothing else. */
  draw() {
    const reasons = new Set(this.view.wants().flatMap(({ key }) => this.failures.get(key) ?? []).map(reasonOf));
    try {
      this.view.update(this.answers);
    } catch (error) {
      reportError(error);
      reasons.add("the page cannot draw it, and the console of the browser says why");
    }
    $("view-note").hidden = reasons.size === 0;
    setText($("view-note"), sentence(`this view is not up to date: ${[...reasons].join("; ")}`));
  }

  /** @param {any} s */
  badges(s) {
    const numbers = { ledger: s.numLedgerEntries, receivers: s.numInactiveReceivers, batches: s.numFailedBatches + s.numHeldBatches };
    for (const tab of this.tabs) {
      const n = numbers[tab.dataset.tab ?? ""] ?? 0;
      const badge = /** @type {HTMLElement} */ (tab.lastElementChild);
      badge.hidden = n === 0;
      setText(badge, count(n));
    }
  }

  /** How old the figures are: a driver tells them live, a checkpoint is read. */
  verb() {
    return this.answers.get("statistics")?.source === "checkpoint" ? "read" : "live";
  }

  /** @param {import("./poll.js").Contact} contact */
  tell({ failure, answeredMs, nextMs }) {
    document.body.classList.toggle("stale", failure !== null);
    setText($("pulse"), failure === null ? `${this.verb()} · ${clock(seconds(answeredMs ?? 0))}` : "no answer");
    $("stale-note").hidden = failure === null;
    if (failure !== null) setText($("stale-note"), staleText(failure, answeredMs, nextMs));
  }
}

/** Why a part of the view has no new answer. @param {NoAnswer} failure */
const reasonOf = (failure) => (failure.status === 0 ? "no answer has come" : failure.message);

/** @param {string} text */
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

/** Without milliseconds. @param {number} ms */
const seconds = (ms) => ms - (ms % 1000);

/** @param {NoAnswer} failure @param {number | null} answeredMs @param {number} nextMs */
function staleText(failure, answeredMs, nextMs) {
  if (failure.status === 401)
    return "The driver asks for its token. Open the address with ?token= that the driver has logged.";
  const age =
    answeredMs === null
      ? ""
      : ` Shown is what it said at ${clock(seconds(answeredMs))}, ${duration(seconds(Date.now() - answeredMs))} ago.`;
  return `${sentence(failure.message)}${age} The page asks again every ${duration(seconds(nextMs))}.`;
}

new Page();
