// A batch as a row: the columns of every table of batches.

import { el } from "./dom.js";
import { count, duration, durationParts, firstLine, iso, moment } from "./format.js";
import { toneOf } from "./state.js";

/** @param {string} text @param {string} tone @param {string | null} [title] */
export const tag = (text, tone, title = null) => el("span", { class: `tag ${tone}`, title }, text);

/** @param {string} status */
export const pill = (status) => el("span", { class: `pill ${toneOf(status)}` }, String(status).toLowerCase());

/** A link to a batch, named by its time. @param {number} ms */
export function batchLink(ms) {
  return el("a", { href: `#/batch/${ms}`, title: iso(ms) }, moment(ms, Date.now()));
}

/** What is unusual about a batch, each as a small tag. @param {any} batch */
export function notes(batch) {
  return [
    batch.limitedBy ? tag("limited", "warn", String(batch.limitedBy)) : null,
    batch.numRecordErrors ? tag(`${count(batch.numRecordErrors)} record errors`, "warn", "Records that failed and were left out") : null,
    batch.numSkipped ? tag(`${count(batch.numSkipped)} skipped`, "warn", "Records that kstream skip has named") : null,
    batch.numLosses ? tag(`${count(batch.numLosses)} losses`, "bad", "Records that were gone before the batch could read them") : null,
  ].filter((node) => node !== null);
}

/** A duration with a bar: how much of the batch interval it took. @param {number | null} ms @param {number} interval */
function measured(ms, interval) {
  if (ms === null) return "–";
  const bar = el("span", { class: ms > interval ? "share above" : "share" });
  bar.style.width = `${Math.min(100, (100 * ms) / interval)}%`;
  return [durationParts(ms).join(" "), el("span", { class: "shares" }, bar)];
}

/** @param {any} batch */
function outputs(batch) {
  if (batch.numTotalOutputOps === 0) return "–"; // it has not been generated
  const failed = batch.numFailedOutputOps ? el("span", { class: "bad-text" }, ` · ${count(batch.numFailedOutputOps)} failed`) : null;
  return [`${count(batch.numCompletedOutputOps)} / ${count(batch.numTotalOutputOps)}`, failed];
}

/** @type {import("./table.js").Column[]} */
const COMMON = [
  { title: "Batch time", cell: (b) => batchLink(b.batchTimeMs), by: (b) => b.batchTimeMs, kind: "time" },
  { title: "Status", cell: (b) => pill(b.status), by: (b) => b.status },
  { title: "Records", cell: (b) => count(b.inputSize), by: (b) => b.inputSize, kind: "num" },
  { title: "Scheduling delay", cell: (b) => duration(b.schedulingDelay), by: (b) => b.schedulingDelay, kind: "num" },
  { title: "Processing time", cell: (b) => measured(b.processingTime, b.batchDuration), by: (b) => b.processingTime, kind: "num" },
  { title: "Total delay", cell: (b) => duration(b.totalDelay), by: (b) => b.totalDelay, kind: "num" },
  {
    title: "Outputs",
    cell: outputs,
    by: (b) => b.numCompletedOutputOps,
    kind: "num",
    hint: "Output operations that have succeeded, of all",
  },
  { title: "Tries", cell: (b) => count(b.tries), by: (b) => b.tries, kind: "num" },
  { title: "Notes", cell: notes, kind: "notes" },
];

/** @type {import("./table.js").Column} */
const ERROR = {
  title: "First error",
  cell: (b) =>
    b.firstFailureReason ? el("span", { class: "clipped bad-text", title: b.firstFailureReason }, firstLine(b.firstFailureReason)) : "",
  kind: "wide",
};

/** Columns of batches that may have failed. */
export const withErrors = [...COMMON, ERROR];

/** Columns of batches that have succeeded. */
export const withoutErrors = COMMON.filter((column) => column.title !== "Status");
