// The last batches as bars, one a batch, oldest at the left: how long each took against the batch interval, in the colour of its state.

import { el, set } from "./dom.js";
import { count, duration, moment } from "./format.js";
import { toneOf } from "./state.js";

const MOST = 120;

export class BatchBars {
  constructor() {
    this.bars = el("div", { class: "bars", "aria-hidden": "true" });
    this.kept = new Map();
    const legend = ["completed", "failed", "held", "retrying or pending", "active"];
    const tones = ["good", "bad", "held", "warn", "plain"];
    const keys = legend.map((name, at) => el("span", { class: "key" }, el("i", { class: tones[at] }), name));
    const head = el("div", { class: "chart-head" }, el("h2", {}, "Last batches"), el("span", { class: "keys" }, keys));
    this.node = el("section", { class: "card" }, head, this.bars);
  }

  /** @param {any[]} batches newest first @param {number} interval */
  update(batches, interval) {
    const shown = batches.slice(0, MOST).reverse();
    const top = Math.max(interval, ...shown.map((batch) => batch.totalDelay ?? 0));
    const before = this.kept;
    this.kept = new Map();
    const nodes = shown.map((batch) => {
      const of = `${batch.status} ${batch.totalDelay} ${batch.inputSize} ${top}`;
      const kept = before.get(batch.batchId) ?? { node: el("a", { tabindex: -1 }, el("i")), of: "" };
      if (kept.of !== of) paint(kept.node, batch, top);
      this.kept.set(batch.batchId, { node: kept.node, of });
      return kept.node;
    });
    this.bars.replaceChildren(...nodes);
  }
}

/** @param {HTMLElement} node @param {any} batch @param {number} top */
function paint(node, batch, top) {
  const what = [batch.status.toLowerCase(), `${count(batch.inputSize)} records`, duration(batch.totalDelay)];
  const title = [moment(batch.batchTimeMs, Date.now()), ...what].join(" · ");
  set(node, { href: `#/batch/${batch.batchTimeMs}`, title, class: toneOf(batch.status) });
  const share = batch.totalDelay === null ? 0.4 : batch.totalDelay / top;
  /** @type {HTMLElement} */ (node.firstElementChild).style.height = `${Math.max(6, Math.round(share * 100))}%`;
}
