// All batches that are kept, of one state or of all.

import { withErrors } from "./batch_columns.js";
import { el, set } from "./dom.js";
import { Table } from "./table.js";

const STATES = ["all", "completed", "failed", "processing", "queued", "held", "retrying", "pending"];
const MOST = 1000;
const LIST_MS = 5000;

export class BatchesView {
  /** @param {string} state @param {() => void} changed asks anew */
  constructor(state, changed) {
    this.title = "Batches";
    this.state = STATES.includes(state) ? state : "all";
    this.changed = changed;
    this.table = new Table({
      label: "Batches",
      columns: withErrors,
      keyOf: (b) => b.batchId,
      sort: { column: 0, down: true },
      empty: "No such batch is kept.",
    });
    this.chips = STATES.map((name) => el("button", { class: "chip", type: "button", "data-state": name }, name));
    for (const chip of this.chips) chip.addEventListener("click", () => this.choose(chip.dataset.state ?? "all"));
    const head = el(
      "div",
      { class: "chart-head" },
      el("h2", {}, "Batches"),
      el("div", { class: "chips", role: "group", "aria-label": "State" }, this.chips),
    );
    this.node = el("div", { class: "view" }, el("section", { class: "card" }, head, this.table.node));
    this.mark();
  }

  /** @param {string} state */
  choose(state) {
    this.state = state;
    this.mark();
    this.changed();
  }

  mark() {
    for (const chip of this.chips) set(chip, { "aria-pressed": String(chip.dataset.state === this.state) });
  }

  /** @returns {import("./poll.js").Want[]} */
  wants() {
    const status = this.state === "all" ? "" : `status=${this.state}&`;
    return [{ key: `batches ${this.state}`, path: `batches?${status}limit=${MOST}`, everyMs: LIST_MS }];
  }

  /** @param {Map<string, any>} answers */
  update(answers) {
    this.table.update(answers.get(`batches ${this.state}`));
  }
}
