// The first view: four charts of the last hour, the last batches as bars, and the batches that run, wait, have failed and have completed.

import { withErrors, withoutErrors } from "./batch_columns.js";
import { BatchBars } from "./batch_bars.js";
import { Chart } from "./chart.js";
import { el } from "./dom.js";
import { lastError } from "./header.js";
import { kindOf, unfinished } from "./state.js";
import { Table } from "./table.js";

const SUBJECTS = [
  { title: "Input rate", key: "inputRate", rate: true },
  { title: "Scheduling delay", key: "schedulingDelay", rate: false },
  { title: "Processing time", key: "processingTime", rate: false },
  { title: "Total delay", key: "totalDelay", rate: false, highest: "maxTotalDelay" },
];
const FEW = 20;
const TIMELINE_MS = 4000;

/** @param {string} title @param {string} label @param {any[]} columns @param {string} empty */
function titled(title, label, columns, empty) {
  const table = new Table({ label, columns, keyOf: (b) => b.batchId, empty });
  return { table, node: el("section", { class: "card" }, el("h2", {}, title), table.node) };
}

export class Overview {
  constructor() {
    this.title = "Overview";
    this.charts = SUBJECTS.map((subject) => new Chart(subject));
    this.error = el("div", { hidden: true });
    this.errorOf = "";
    this.bars = new BatchBars();
    this.active = titled("Active and waiting batches", "Active and waiting batches", withErrors, "No batch runs or waits.");
    this.failed = titled("Failed batches", "Failed batches", withErrors, "No batch has failed.");
    this.completed = titled("Completed batches", "Completed batches", withoutErrors, "No batch has completed yet.");
    const all = el("p", { class: "after" }, el("a", { href: "#/batches" }, "All batches that are kept"));
    this.completed.node.append(all);
    const charts = el(
      "div",
      { class: "charts" },
      this.charts.map((chart) => chart.node),
    );
    this.node = el("div", { class: "view" }, this.error, charts, this.bars.node, this.active.node, this.failed.node, this.completed.node);
  }

  /** @returns {import("./poll.js").Want[]} */
  wants() {
    const waiting = unfinished.map((status) => `status=${status}`).join("&");
    return [
      { key: "timeline", path: "timeline", everyMs: TIMELINE_MS },
      { key: "active", path: `batches?${waiting}&limit=${FEW * 5}` },
      { key: "failed", path: `batches?status=failed&limit=${FEW}` },
      { key: "completed", path: `batches?status=completed&limit=${FEW}` },
      { key: "recent", path: "batches?limit=120" },
    ];
  }

  /** @param {Map<string, any>} answers */
  update(answers) {
    const s = answers.get("statistics");
    if (!s) return;
    const timeline = answers.get("timeline");
    if (timeline) for (const chart of this.charts) chart.update(timeline, s.nowMs, s.batchDuration);
    this.showError(s);
    this.bars.update(answers.get("recent") ?? [], s.batchDuration);
    for (const name of ["active", "failed", "completed"]) this[name].table.update(answers.get(name));
  }

  /** @param {any} s */
  showError(s) {
    const of = `${kindOf(s)} ${JSON.stringify(s.lastError)}`;
    if (of === this.errorOf) return;
    this.errorOf = of;
    const block = lastError(s);
    this.error.replaceChildren(...(block ? [block] : []));
    this.error.hidden = block === null;
  }
}
