// The views that are one list each: receivers, decisions, the ledger, settings.

import { batchLink, tag } from "./batch_columns.js";
import { el, setText } from "./dom.js";
import { count, firstLine, iso, moment, short } from "./format.js";
import { Table } from "./table.js";

const KINDS = { limit: "plain", rate: "plain", allocation: "plain", warning: "warn", error: "bad", "data loss": "bad" };

/** @param {number} ms */
const at = (ms) => el("time", { datetime: iso(ms), title: iso(ms) }, moment(ms, Date.now()));

/** Long text, all of it, in a box of its own height. @param {string | null} text */
const long = (text) => el("div", { class: "long" }, text ?? "");

/** @param {any} receiver */
function receiverError(receiver) {
  if (!receiver.lastErrorMessage && !receiver.lastError) return "none";
  const when = receiver.lastErrorTime ? el("span", { class: "muted" }, `${receiver.lastErrorTime} `) : null;
  const text = receiver.lastError
    ? el(
        "details",
        {},
        el("summary", {}, firstLine(receiver.lastErrorMessage)),
        el("pre", { class: "trace", tabindex: 0 }, receiver.lastError),
      )
    : long(receiver.lastErrorMessage);
  return [when, text];
}

/**
 * @typedef {object} List
 * @property {string} title
 * @property {string} about
 * @property {string} path what is asked for
 * @property {import("./table.js").Column[]} columns
 * @property {(row: any) => string} keyOf
 * @property {string} empty
 * @property {string} [unknown] what is said of a checkpoint, if it does not know the list
 * @property {{column: number, down: boolean}} [sort]
 */

/** @type {Record<string, List>} */
export const LISTS = {
  receivers: {
    title: "Receivers",
    about: "Each receiver runs as a task of Spark on an executor.",
    path: "receivers",
    keyOf: (r) => String(r.streamId),
    empty: "This application has no receiver.",
    unknown: "A checkpoint does not know the receivers: the page of the driver has them.",
    columns: [
      { title: "Receiver", cell: (r) => r.streamName, by: (r) => r.streamName, kind: "wide" },
      {
        title: "Status",
        cell: (r) => el("span", { class: `pill ${r.isActive ? "good" : "bad"}` }, r.isActive ? "active" : "not active"),
        by: (r) => String(r.isActive),
      },
      {
        title: "Executor",
        cell: (r) => [r.executorId, " ", el("span", { class: "muted" }, r.executorHost)],
        by: (r) => r.executorId,
        kind: "wide",
      },
      { title: "Starts", cell: (r) => count(r.numStarts), by: (r) => r.numStarts, kind: "num" },
      { title: "Errors", cell: (r) => count(r.numErrors), by: (r) => r.numErrors, kind: "num" },
      { title: "Last error", cell: receiverError, kind: "wide" },
      {
        title: "Records a second",
        cell: (r) => short(r.avgEventRate),
        by: (r) => r.avgEventRate,
        kind: "num",
        hint: "The mean of the batches that are kept with all facts",
      },
      {
        title: "Rate limit",
        cell: (r) => short(r.rateLimit),
        by: (r) => r.rateLimit,
        kind: "num",
        hint: "The records a second that back-pressure allows now",
      },
    ],
    sort: { column: 0, down: false },
  },
  decisions: {
    title: "Decisions",
    about: "What the driver has decided or met, with its reason: limits of a batch, rates, executors, warnings. Newest first.",
    path: "decisions",
    keyOf: (d) => `${d.timeMs} ${d.kind} ${d.batchTimeMs} ${d.text}`,
    empty: "The driver has not decided anything yet.",
    columns: [
      { title: "Time", cell: (d) => at(d.timeMs), kind: "time" },
      { title: "Kind", cell: (d) => tag(d.kind, KINDS[d.kind] ?? "plain") },
      { title: "Decision", cell: (d) => long(d.text), kind: "wide" },
      { title: "Batch", cell: (d) => (d.batchTimeMs === null ? "" : batchLink(d.batchTimeMs)), kind: "time" },
    ],
  },
  ledger: {
    title: "Ledger",
    about: "Data loss, skipped records and batches that were given up. kstream ledger ack acknowledges an entry.",
    path: "ledger",
    keyOf: (l) => `${l.batchTimeMs} ${l.kind} ${l.stream} ${l.text}`,
    empty: "The ledger is empty: nothing was lost, left out or given up.",
    columns: [
      { title: "Batch", cell: (l) => batchLink(l.batchTimeMs), kind: "time" },
      { title: "Kind", cell: (l) => tag(l.kind, l.acknowledged ? "plain" : "bad") },
      { title: "Stream", cell: (l) => (l.stream === null ? "all" : l.stream), kind: "num" },
      { title: "What happened", cell: (l) => long(l.text), kind: "wide" },
      { title: "Acknowledged", cell: (l) => (l.acknowledged ? "yes" : "no") },
    ],
  },
  settings: {
    title: "Settings",
    about: "Settings that differ from their defaults. Secrets are not shown.",
    path: "settings",
    keyOf: (s) => s.key,
    empty: "All settings have their defaults.",
    unknown: "A checkpoint does not know the settings: the page of the driver has them.",
    columns: [
      { title: "Setting", cell: (s) => el("code", { class: "long" }, s.key), by: (s) => s.key, kind: "wide key" },
      { title: "Value", cell: (s) => el("code", { class: "long" }, s.value), by: (s) => s.value, kind: "wide" },
      { title: "Default", cell: (s) => el("code", { class: "long muted" }, s.default), kind: "wide" },
      { title: "Meaning", cell: (s) => long(s.meaning), kind: "wide" },
    ],
    sort: { column: 0, down: false },
  },
};

export class ListView {
  /** @param {string} name */
  constructor(name) {
    this.list = LISTS[name];
    this.title = this.list.title;
    this.table = new Table({ ...this.list, label: this.list.title });
    this.about = el("p", { class: "muted" }, this.list.about);
    this.node = el("div", { class: "view" }, el("section", { class: "card" }, el("h2", {}, this.title), this.about, this.table.node));
  }

  /** @returns {import("./poll.js").Want[]} */
  wants() {
    return [{ key: this.list.path, path: this.list.path }];
  }

  /** @param {Map<string, any>} answers */
  update(answers) {
    const rows = answers.get(this.list.path);
    if (!Array.isArray(rows)) return;
    const unknown = answers.get("statistics")?.source === "checkpoint" && this.list.unknown;
    setText(this.about, unknown || this.list.about);
    this.table.node.hidden = Boolean(unknown);
    this.table.update(rows);
  }
}
