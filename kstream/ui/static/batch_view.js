// The page of one batch: its output operations with their errors, exactly what each input read, and what was left out.

import { NoAnswer } from "./api.js";
import { notes, pill, tag } from "./batch_columns.js";
import { el, outside } from "./dom.js";
import { clock, count, counted, day, duration, iso, short } from "./format.js";
import { toneOf } from "./state.js";
import { Table } from "./table.js";

const MOST_LINES = 500;
const OVER_MS = 60000;

export class BatchView {
  /** @param {number} ms */
  constructor(ms) {
    this.ms = ms;
    this.title = `Batch ${clock(ms)}`;
    this.of = "";
    this.isOver = false; // then nothing of it changes, and its facts may be long
    this.node = el("div", { class: "view" }, el("p", { class: "empty" }, "Asking for the batch …"));
  }

  /** @returns {import("./poll.js").Want[]} */
  wants() {
    return [{ key: `batch ${this.ms}`, path: `batches/${this.ms}`, everyMs: this.isOver ? OVER_MS : 0, mayMiss: true }];
  }

  /** @param {Map<string, any>} answers */
  update(answers) {
    const batch = answers.get(`batch ${this.ms}`);
    if (batch === undefined) return;
    this.isOver = batch.status === "COMPLETED";
    const of = batch instanceof NoAnswer ? `? ${batch.message}` : JSON.stringify(batch);
    if (of === this.of) return;
    this.of = of;
    const before = readingOf(this.node);
    this.node.replaceChildren(...(batch instanceof NoAnswer ? [missing(this.ms, batch)] : parts(batch)));
    goOnReading(this.node, before);
  }
}

/** What somebody has opened, and how far each traceback is scrolled. @param {HTMLElement} node */
function readingOf(node) {
  const opened = [...node.querySelectorAll("details")].map((details) => details.open);
  return { opened, scrolled: [...node.querySelectorAll(".trace")].map((trace) => trace.scrollTop) };
}

/** Leave a batch that has changed as it was read; a new traceback shows its end, where the error stands. @param {HTMLElement} node */
function goOnReading(node, /** @type {{opened: boolean[], scrolled: number[]}} */ { opened, scrolled }) {
  node.querySelectorAll("details").forEach((details, at) => (details.open = opened[at] ?? false));
  node.querySelectorAll(".trace").forEach((trace, at) => (trace.scrollTop = scrolled[at] ?? trace.scrollHeight));
}

/** @param {number} ms @param {NoAnswer} failure */
const missing = (ms, failure) =>
  el(
    "section",
    { class: "card" },
    el("h2", {}, `Batch of ${clock(ms)}`),
    el("p", { class: "empty" }, "Nothing is kept of this batch. ", failure.message),
    el("p", {}, "A driver with a checkpoint shows each batch that its history has (spark.streaming.kstream.history)."),
    el("p", {}, el("a", { href: "#/batches" }, "All batches that are kept")),
  );

/** @param {any} batch */
function parts(batch) {
  const operations = batch.operations.length ? batch.operations.map(operation) : [];
  if (!operations.length || (batch.status === "COMPLETED" && operations.length !== batch.numTotalOutputOps))
    operations.push(el("p", { class: "empty" }, noOperations(batch)));
  const inputs = batch.inputs.length ? batch.inputs.map(input) : el("p", { class: "empty" }, "What it reads is not kept.");
  return [
    head(batch),
    el("section", { class: "card" }, el("h2", {}, "Output operations"), el("div", { class: "stack" }, operations)),
    el("section", { class: "card" }, el("h2", {}, "Inputs"), el("div", { class: "stack" }, inputs)),
    batch.skipped.length ? skipped(batch.skipped) : null,
  ].filter((node) => node !== null);
}

/** @param {any} batch */
const noOperations = ({ status, operations }) => {
  if (operations.length) return "Of an older batch only the output operations with figures are kept.";
  return status === "COMPLETED" || status === "FAILED" ? "Its output operations are not kept." : "None has been generated yet.";
};

/** @param {any} batch */
function head(batch) {
  const figures = [
    ["Records", count(batch.inputSize)],
    ["Scheduling delay", duration(batch.schedulingDelay)],
    ["Processing time", duration(batch.processingTime)],
    ["Total delay", duration(batch.totalDelay)],
    ["Outputs", batch.numTotalOutputOps ? `${count(batch.numCompletedOutputOps)} of ${count(batch.numTotalOutputOps)} done` : "–"],
    ["Tries", count(batch.tries)],
    ["Record errors", count(batch.numRecordErrors)],
    ["Skipped", count(batch.numSkipped)],
    ["Losses", count(batch.numLosses)],
    ...batch.figures.map((f) => [f.label, measured(f)]),
  ];
  return el(
    "section",
    { class: "card batch-head" },
    el("p", { class: "crumbs" }, el("a", { href: "#/" }, "Overview"), " / ", el("a", { href: "#/batches" }, "Batches")),
    el(
      "div",
      { class: "batch-title" },
      el("h2", {}, "Batch of ", el("time", { datetime: iso(batch.batchTimeMs) }, clock(batch.batchTimeMs))),
      pill(batch.status),
      notes(batch),
    ),
    el(
      "p",
      { class: "muted" },
      day(batch.batchTimeMs),
      " · batch time ",
      el("code", {}, batch.batchTimeMs),
      " ms · ",
      iso(batch.batchTimeMs),
    ),
    batch.limitedBy && !batch.inputs.some((i) => i.limitedBy)
      ? el("div", { class: "notice warn" }, el("strong", {}, "Limited: "), batch.limitedBy)
      : null,
    batch.firstFailureReason && !batch.operations.some((o) => o.error)
      ? el("div", { class: "notice bad" }, el("strong", {}, "First error: "), el("span", { class: "long" }, batch.firstFailureReason))
      : null,
    el(
      "dl",
      { class: "facts wide-facts" },
      figures.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
    ),
  );
}

/** @param {any} o */
function operation(o) {
  const jobs = o.jobIds.map((id, at) => [at ? " " : "", o.jobUrls[at] ? outside(o.jobUrls[at], `job ${id}`) : `job ${id}`]);
  return el(
    "article",
    { class: `part ${toneOf(o.status)}` },
    el(
      "div",
      { class: "part-head" },
      el("h3", {}, el("span", { class: "muted" }, `${o.outputOpId} `), o.name),
      pill(o.status),
      el("span", { class: "part-figure" }, duration(o.duration)),
    ),
    el(
      "p",
      { class: "muted long" },
      o.description && !o.name.includes(o.description) ? [o.description, " · "] : null,
      o.startTimeMs === null ? "has not begun" : `began ${clock(o.startTimeMs)}`,
      o.endTimeMs === null ? null : `, ended ${clock(o.endTimeMs)}`,
      jobs.length ? [" · Spark ", jobs] : null,
    ),
    figureTags(o.figures),
    o.error ? el("p", { class: "error-line long" }, o.error) : null,
    o.failureReason ? failure(o) : null,
  );
}

/** The traceback of the user's functions; what the driver adds to it is folded away. @param {any} o */
function failure(o) {
  const trace = (/** @type {string} */ text, /** @type {string} */ what) =>
    el("pre", { class: "trace", tabindex: 0, role: "region", "aria-label": `${what} of output operation ${o.outputOpId}` }, text);
  const own = lastTraceback(o.failureReason);
  if (own === o.failureReason) return trace(own, "Traceback");
  return [
    trace(own, "Traceback"),
    el(
      "details",
      {},
      el("summary", {}, "The whole traceback, with that of the driver"),
      trace(o.failureReason, "Whole traceback"),
    ),
  ];
}

/** The part that begins with the last traceback. The worker's stands last: it has the user's functions alone. @param {string} text */
export function lastTraceback(text) {
  const at = text.lastIndexOf("\nTraceback (most recent call last):");
  return at < 0 ? text : text.slice(at + 1);
}

/** @param {any} i */
function input(i) {
  return el(
    "article",
    { class: "part" },
    el(
      "div",
      { class: "part-head" },
      el("h3", {}, el("span", { class: "muted" }, `${i.id} `), i.description),
      el("span", { class: "part-figure" }, counted(i.numRecords, "record")),
    ),
    inputNotes(i),
    i.limitedBy ? limit(i.limitedBy) : null,
    i.skewed && i.skewed.length ? skewed(i.skewed) : null,
    i.numRecordErrors ? recordErrors(i) : null,
    i.offsets.length ? offsets(i) : null,
    i.blocks.length ? listed("Received blocks", i.blocks) : null,
    i.files.length ? listed("Files", i.files) : null,
    facts(i.facts),
  );
}

/** What was measured, with its unit. @param {any} f */
const measured = ({ unit, value }) => (unit === "ms" ? duration(value) : `${short(value)} ${unit}`.trimEnd());

/** @param {any} f */
const figureTag = (f) => tag(`${f.label} ${measured(f)}`, "plain");

/** @param {any[]} figures */
const figureTags = (figures) => (figures.length ? el("p", { class: "tags" }, figures.map(figureTag)) : null);

/** @param {any} i */
function inputNotes(i) {
  const tags = [
    ...i.figures.map(figureTag),
    i.numRecordErrors ? tag(counted(i.numRecordErrors, "record error"), "warn") : null,
    i.numSkipped ? tag(`${count(i.numSkipped)} skipped`, "warn") : null,
    i.numLosses ? tag(counted(i.numLosses, "loss", "losses"), "bad") : null,
  ].filter((node) => node !== null);
  return tags.length ? el("p", { class: "tags" }, tags) : null;
}

/** The partitions with far more records than the others of their topic. @param {any[]} found */
function skewed(found) {
  const said = found.map(({ topic, partition, count: records, factor }) => {
    const times = factor === null ? "most others of the topic have none" : `${factor} times the median of the topic`;
    return `${topic}-${partition} has ${counted(records, "record")}, ${times}`;
  });
  return el("div", { class: "notice warn" }, el("strong", {}, "Skewed: "), el("span", { class: "long" }, said.join(" · ")));
}

/** Which records the errors policy has left out, and how to see them. @param {any} i */
function recordErrors(i) {
  const kinds = i.recordErrors.map((kind) => `${count(kind.numRecords)} × ${kind.exception} in ${kind.operator}`);
  const tell = (/** @type {string} */ command) => el("code", {}, `kstream dlq ${command} TOPIC`);
  return el(
    "div",
    { class: "notice warn" },
    el("strong", {}, `Left out after an error: ${counted(i.numRecordErrors, "record")}`),
    kinds.length ? el("span", { class: "long" }, ` · ${kinds.join(" · ")}`) : null,
    i.errorsPolicy === "skip" ? " · onRecordError=skip: they are in no dead-letter topic" : null,
    i.errorsPolicy === "dead-letter" ? [" · they are dead letters: ", tell("ls"), " counts them, ", tell("show"), " prints them"] : null,
  );
}

/** Why an input gave no more records. @param {any} limitedBy */
function limit(limitedBy) {
  const rest = Object.entries(limitedBy).filter(([name]) => name !== "reason");
  return el(
    "div",
    { class: "notice warn" },
    el("strong", {}, "Limited: "),
    String(limitedBy.reason ?? ""),
    rest.length ? el("span", { class: "muted long" }, ` · ${rest.map(([name, value]) => `${name} ${asText(value)}`).join(" · ")}`) : null,
  );
}

/** @param {any} i */
function offsets(i) {
  const table = new Table({
    label: `Offset ranges of ${i.description}`,
    columns: [
      { title: "Topic", cell: (o) => o.topic, by: (o) => o.topic, kind: "wide" },
      { title: "Partition", cell: (o) => o.partition, by: (o) => o.partition, kind: "num" },
      { title: "From offset", cell: (o) => count(o.fromOffset), by: (o) => o.fromOffset, kind: "num", hint: "The first offset, included" },
      { title: "Until offset", cell: (o) => count(o.untilOffset), by: (o) => o.untilOffset, kind: "num", hint: "The end, excluded" },
      {
        title: "Records",
        cell: (o) => count(o.count),
        by: (o) => o.count,
        kind: "num",
        hint: "A range may have fewer records than offsets",
      },
    ],
    keyOf: (o) => `${o.topic} ${o.partition}`,
    sort: { column: 0, down: false },
    empty: "No range.",
  });
  table.update(i.offsets);
  return table.node;
}

/** @param {string} title @param {string[]} names */
function listed(title, names) {
  const shown = names.slice(0, MOST_LINES);
  const rest = names.length - shown.length;
  return el(
    "div",
    {},
    el("h4", {}, title, " ", el("span", { class: "muted" }, count(names.length))),
    el(
      "ul",
      { class: "names", tabindex: 0 },
      shown.map((name) => el("li", {}, name)),
      rest ? el("li", { class: "muted" }, `and ${count(rest)} more`) : null,
    ),
  );
}

/** @param {Record<string, unknown>} of */
function facts(of) {
  const entries = Object.entries(of ?? {}).filter(([, value]) => value !== null && value !== "");
  if (entries.length === 0) return null;
  const rows = entries
    .slice(0, MOST_LINES)
    .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { class: "long" }, asText(value))));
  return el("details", {}, el("summary", {}, "More facts"), el("dl", { class: "facts wide-facts" }, rows));
}

/** @param {unknown} value */
const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value)).slice(0, 20000);

/** @param {any[]} records */
function skipped(records) {
  const table = new Table({
    label: "Records that the batch leaves out",
    columns: [
      { title: "Stream", cell: (r) => r.stream },
      { title: "Record", cell: (r) => r.record, kind: "wide code" },
    ],
    keyOf: (r) => `${r.stream} ${r.record}`,
    empty: "None.",
  });
  table.update(records);
  return el("section", { class: "card" }, el("h2", {}, "Skipped records"), table.node);
}
