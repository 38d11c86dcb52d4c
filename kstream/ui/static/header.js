// The head of the page: what the driver does in one sentence, where it runs, and eight figures.

import { el, outside, setText } from "./dom.js";
import { count, counted, duration, durationParts, iso, moment, short } from "./format.js";
import { kindOf, sinceOf, wordOf } from "./state.js";

/** @typedef {{title: string, hint: string, of: (s: any, last: any) => {value: [string, string], note: string, tone?: string}}} Figure */

const mean = (/** @type {number | null} */ ms) => (ms === null ? "no batch yet" : `mean ${duration(ms)}`);

/** @type {Figure[]} */
const FIGURES = [
  {
    title: "Records a second",
    hint: "In the batch that ended last, and the mean of the batches that are kept",
    of: (s, last) => ({
      value: [short(last && last.inputSize !== null ? (last.inputSize * 1000) / last.batchDuration : s.avgInputRate), "/s"],
      note: s.avgInputRate === null ? "no batch yet" : `mean ${short(s.avgInputRate)} /s`,
    }),
  },
  {
    title: "Scheduling delay",
    hint: "How long the batch that ended last had waited before its first job began",
    of: (s, last) => ({
      value: durationParts(last?.schedulingDelay),
      note: mean(s.avgSchedulingDelay),
      tone: over(last?.schedulingDelay, s),
    }),
  },
  {
    title: "Processing time",
    hint: "How long the jobs of the batch that ended last ran",
    of: (s, last) => ({ value: durationParts(last?.processingTime), note: mean(s.avgProcessingTime), tone: over(last?.processingTime, s) }),
  },
  {
    title: "Total delay",
    hint: "Scheduling delay and processing time of the batch that ended last",
    of: (s, last) => ({ value: durationParts(last?.totalDelay), note: mean(s.avgTotalDelay) }),
  },
  {
    title: "Behind",
    hint: "For how long the oldest unfinished batch has been due",
    of: (s) => ({
      value: durationParts(s.secondsBehind * 1000),
      note: oldest(s),
      tone: kindOf({ ...s, state: "", numHeldBatches: 0, numFailedBatches: 0, numWaitingBatches: 0 }) === "late" ? "warn" : "",
    }),
  },
  {
    title: "Lag",
    hint: "Records after the last batch that has succeeded without a gap, up to the ends of the logs",
    of: (s) => ({
      value: [short(s.lagRecords), ""],
      note: s.outageSinceMs !== null ? "not counted in an outage" : s.lagRecords === null ? "no input has told it" : "records",
    }),
  },
  {
    title: "Failed",
    hint: "Batches that have failed, and no retry is left",
    of: (s) => ({
      value: [count(s.numFailedBatches), ""],
      note: s.numFailedBatches ? "no retry is left" : s.numWaitingBatches ? `${count(s.numWaitingBatches)} waiting` : "none",
      tone: s.numFailedBatches ? "bad" : "",
    }),
  },
  {
    title: "Pending",
    hint: "Planned batches that have not succeeded. Active ones run, or are about to",
    of: (s) => ({
      value: [count(s.numUnfinishedBatches), ""],
      note: running(s),
      tone: s.numHeldBatches ? "held" : "",
    }),
  },
];

/** Since when the oldest batch is due. @param {any} s */
const oldest = (s) => {
  if (s.oldestUnfinishedMs !== null) return `oldest ${moment(whole(s.oldestUnfinishedMs), s.nowMs)}`;
  return s.secondsBehind ? "the next batch is due" : "no batch is due";
};

/** Whether a delay is longer than the batch interval. @param {number | null | undefined} ms @param {any} s */
const over = (ms, s) => ((ms ?? 0) > s.batchDuration ? "warn" : "");

export class Header {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.word = el("span", { class: "state-word" });
    this.sentence = el("p", { class: "sentence" });
    this.facts = el("dl", { class: "facts" });
    this.factsOf = "";
    this.figures = FIGURES.map((figure) => new Tile(figure));
    const said = el(
      "div",
      { class: "said", role: "status" },
      el("h1", { class: "state" }, el("span", { class: "lamp" }), this.word),
      this.sentence,
    );
    root.replaceChildren(
      said,
      this.facts,
      el(
        "div",
        { class: "figures" },
        this.figures.map((tile) => tile.node),
      ),
    );
  }

  /** @param {any} s the statistics @param {any} last the batch that ended last, or nothing */
  update(s, last) {
    const kind = kindOf(s);
    this.root.hidden = false;
    this.root.dataset.kind = kind;
    setText(this.word, wordOf(kind));
    setText(this.sentence, sentenceOf(kind, s));
    this.showFacts(factsOf(s));
    for (const tile of this.figures) tile.update(s, last);
  }

  /** @param {[string, unknown, string][]} facts */
  showFacts(facts) {
    const of = JSON.stringify(facts.map(([name, value, href]) => [name, String(value), href]));
    if (of === this.factsOf) return;
    this.factsOf = of;
    this.facts.replaceChildren(
      ...facts.map(([name, value, href]) =>
        el("div", {}, el("dt", { hidden: !name }, name || value), el("dd", {}, href ? outside(href, value) : value)),
      ),
    );
  }
}

class Tile {
  /** @param {Figure} figure */
  constructor(figure) {
    this.figure = figure;
    this.value = el("span", { class: "value" });
    this.unit = el("span", { class: "unit" });
    this.note = el("span", { class: "note" });
    const title = el("span", { class: "label" }, figure.title);
    this.node = el(
      "div",
      { class: "figure", title: figure.hint },
      title,
      el("span", { class: "amount" }, this.value, this.unit),
      this.note,
    );
  }

  /** @param {any} s @param {any} last */
  update(s, last) {
    const { value, note, tone } = this.figure.of(s, last);
    setText(this.value, value[0]);
    setText(this.unit, value[1]);
    setText(this.note, note);
    this.node.dataset.tone = tone || "plain";
  }
}

/** Without milliseconds. @param {number} ms */
const whole = (ms) => ms - (ms % 1000);

/** @param {import("./state.js").Kind} kind @param {any} s */
function sentenceOf(kind, s) {
  const since = sinceOf(kind, s);
  const text = String(s.stateText ?? "")
    .trim()
    .replace(/^[a-z]+: /i, ""); // the word of the state stands before it
  const sentence = text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) || !text ? "" : ".");
  return since === null ? sentence : `${sentence} Since ${moment(whole(since), s.nowMs)}, for ${duration(whole(s.nowMs - since))}.`;
}

/** What becomes of the pending batches; nothing if only their driver knows. @param {any} s */
function running(s) {
  if (s.numHeldBatches) return `${count(s.numHeldBatches)} held`;
  if (s.numActiveBatches) return `${count(s.numActiveBatches)} active`;
  return s.numActiveBatches === null ? "" : "none runs";
}

/** @param {any} s @returns {[string, unknown, string][]} */
function factsOf(s) {
  const facts = [
    ["Batch interval", duration(s.batchDuration), ""],
    ["Driver", s.host === null ? "–" : `${s.host} · pid ${s.pid}`, ""],
    ["Epoch", s.epoch, ""],
    ["Started", moment(whole(s.startTimeMs), s.nowMs), ""],
    s.numTotalCompletedBatches === null ? null : ["Completed", counted(s.numTotalCompletedBatches, "batch", "batches"), ""],
    s.numProcessedRecords === null ? null : ["Processed", counted(s.numProcessedRecords, "record"), ""],
    s.source === "checkpoint" ? ["Source", "the checkpoint, not a driver", ""] : null,
    s.sparkUiUrl ? ["", "Spark UI", s.sparkUiUrl] : null,
    s.metricsUrl ? ["", "Metrics", s.metricsUrl] : null,
  ];
  return /** @type {[string, unknown, string][]} */ (facts.filter((fact) => fact !== null));
}

/** The last error of the driver as one block; null without one. @param {any} s */
export function lastError(s) {
  const error = s.lastError;
  if (!error) return null;
  const where = [
    error.operation && `output operation ${error.operation}`,
    error.batchTimeMs === null ? null : `batch of ${moment(error.batchTimeMs, s.nowMs)}`,
  ].filter(Boolean);
  const head = el(
    "div",
    { class: "notice-head" },
    el("strong", {}, "Last error"),
    el("time", { datetime: iso(error.timeMs), title: iso(error.timeMs) }, moment(error.timeMs, s.nowMs)),
    el("span", { class: "muted" }, [...where, error.settled].filter(Boolean).join(" · ")),
    error.batchTimeMs === null ? null : el("a", { href: `#/batch/${error.batchTimeMs}` }, "open the batch"),
  );
  const past = error.settled || ["running", "late", "ended"].includes(kindOf(s)); // it is over, and still worth to be known
  return el("div", { class: past ? "notice" : "notice bad" }, head, el("pre", { class: "trace short", tabindex: 0 }, error.text));
}
