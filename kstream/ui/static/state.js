// What the driver does, as one word with a colour. Pure: figures in, words out.

/** @typedef {"running" | "late" | "failing" | "held" | "dead" | "fenced" | "ended" | "unknown"} Kind */

const LATE_INTERVALS = 10;
const LATE_LEAST_S = 30;

const WORDS = {
  running: "Running",
  late: "Late",
  failing: "Failing",
  held: "Held",
  dead: "Dead",
  fenced: "Fenced",
  ended: "Ended",
  unknown: "Unknown",
};

const UNFINISHED = "processing queued held retrying pending".split(" ");

/** The states of a batch that has not ended. */
export const unfinished = UNFINISHED;

/** @param {any} s the statistics @returns {Kind} */
export function kindOf(s) {
  const word = String(s.state ?? "")
    .split(/[\s:]/, 1)[0]
    .toLowerCase();
  if (word === "ended" || word === "stopped") return "ended";
  if (word === "dead" || word === "fenced") return word;
  if (word === "unknown") return "unknown";
  if (s.numHeldBatches > 0 || word === "held") return "held";
  if (word === "failing" || s.numFailedBatches > 0 || s.numWaitingBatches > 0) return "failing";
  if (word === "behind" || word === "late" || s.secondsBehind > lateAfter(s)) return "late";
  return "running";
}

/** Seconds behind that are late: as `kstream status` judges. @param {any} s */
const lateAfter = (s) => Math.max(LATE_LEAST_S, (LATE_INTERVALS * s.batchDuration) / 1000);

/** @param {Kind} kind */
export const wordOf = (kind) => WORDS[kind];

/** Since when the state is so; null if that is not known. @param {Kind} kind @param {any} s @returns {number | null} */
export function sinceOf(kind, s) {
  if (kind === "running") return s.startTimeMs;
  if (kind === "late" || kind === "held" || kind === "failing") return s.oldestUnfinishedMs;
  return null;
}

/** The class of a batch's or an operation's state. @param {string} status */
export function toneOf(status) {
  if (status === "FAILED") return "bad";
  if (status === "HELD") return "held";
  if (status === "RETRYING" || status === "PENDING") return "warn";
  return status === "COMPLETED" ? "good" : "plain";
}
