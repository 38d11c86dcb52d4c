// The shapes of a chart as SVG: axes, line, bound, marks, histogram.

import { tenth } from "./chart_frame.js";
import { svg } from "./dom.js";
import { duration, hour, short } from "./format.js";
import { histogram, momentsIn } from "./scale.js";

/** @typedef {import("./chart_frame.js").Frame} Frame */

const BINS = 12;
const BARS = 44;
const WIDTH_OF_A_TIME = 80;
let clips = 0;

/** @param {Frame} f */
export function axes(f) {
  const lines = f.ticks.flatMap((tick) => [
    svg("line", { class: tick === 0 ? "axis" : "grid", x1: f.left, x2: f.right, y1: f.y(tick), y2: f.y(tick) }),
    svg(
      "text",
      { class: "tick", x: f.left - 8, y: f.y(tick) + 4, "text-anchor": "end" },
      f.subject.rate || tick === 0 ? short(tick) : duration(tick),
    ),
  ]);
  const moments = momentsIn(f.span[0], f.span[1], Math.max(2, (f.right - f.left) / WIDTH_OF_A_TIME));
  const inside = moments.filter((ms) => f.x(ms) > f.left + 14 && f.x(ms) < f.right - 14);
  const times = inside.map((ms) => svg("text", { class: "tick", x: f.x(ms), y: f.height - 5, "text-anchor": "middle" }, hour(ms)));
  return [...lines, ...times];
}

/** The line of the values and what belongs to it. @param {Frame} f */
export function values(f) {
  const line = path(f, f.subject.key);
  return [
    f.subject.highest ? svg("path", { class: "highest", d: path(f, f.subject.highest) }) : null,
    svg("path", { class: "area", d: area(f) }),
    svg("path", { class: "line", d: line }),
    ...(f.subject.rate ? [] : bound(f, line)),
    svg("path", { class: "failed", d: failures(f) }),
  ].filter((node) => node !== null);
}

/** The batch interval, and once more in another colour what is above it. @param {Frame} f @param {string} line */
function bound(f, line) {
  const at = f.y(f.interval);
  const clip = `above-${(clips = (clips + 1) % 1000)}`;
  return [
    svg("clipPath", { id: clip }, svg("rect", { x: 0, y: 0, width: f.width, height: Math.max(0, at - 0.5) })),
    svg("path", { class: "line above", d: line, "clip-path": `url(#${clip})` }),
    svg("line", { class: "interval", x1: f.left, x2: f.right, y1: at, y2: at }),
    svg("text", { class: "interval-name", x: f.left + 4, y: at - 5 }, `interval ${duration(f.interval)}`),
  ];
}

/** Runs of buckets without a hole between them. @param {Frame} f @param {string} key @returns {any[][]} */
function runs(f, key) {
  /** @type {any[][]} */
  const found = [];
  let before = -Infinity;
  for (const bucket of f.buckets) {
    if (bucket[key] === null) continue;
    if (bucket.timeMs - before > f.hole) found.push([]);
    found[found.length - 1].push(bucket);
    before = bucket.timeMs;
  }
  return found;
}

/** @param {Frame} f @param {string} key */
function path(f, key) {
  const point = (/** @type {any} */ bucket) => `${f.middle(bucket)} ${f.y(bucket[key])}`;
  return runs(f, key)
    .map((run) => (run.length === 1 ? `M${point(run[0])}h1` : `M${run.map(point).join("L")}`))
    .join("");
}

/** @param {Frame} f */
function area(f) {
  return runs(f, f.subject.key)
    .map((run) => {
      const points = run.map((bucket) => `L${f.middle(bucket)} ${f.y(bucket[f.subject.key])}`).join("");
      return `M${f.middle(run[0])} ${f.base}${points}L${f.middle(run[run.length - 1])} ${f.base}Z`;
    })
    .join("");
}

/** A dot for each bucket with a failed batch. @param {Frame} f */
function failures(f) {
  const dot = (/** @type {any} */ bucket) =>
    `M${tenth(f.middle(bucket) - 3)} ${f.y(bucket[f.subject.key] ?? 0)}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0`;
  return f.buckets
    .filter((bucket) => bucket.numFailed > 0)
    .map(dot)
    .join("");
}

/** The histogram at the right: how many batches had such a value. @param {Frame} f */
export function bars(f) {
  const counts = histogram(
    f.known.map((bucket) => [bucket[f.subject.key], bucket.numBatches]),
    f.top,
    BINS,
  );
  const most = Math.max(1, ...counts);
  const left = f.width - BARS;
  const height = (f.base - f.above) / BINS;
  const bar = (/** @type {number} */ n, /** @type {number} */ at) => {
    const y = tenth(f.base - (at + 1) * height + 1);
    return svg("rect", { class: "bin", x: left, y, height: tenth(height - 2), width: tenth((n / most) * BARS), rx: 1 });
  };
  const foot = svg("line", { class: "axis", x1: left, x2: left, y1: f.above, y2: f.base });
  return [foot, ...counts.flatMap((n, at) => (n > 0 ? [bar(n, at)] : []))];
}

/** The line through a bucket that is pointed at. @param {Frame} f @param {any} bucket */
export function pointer(f, bucket) {
  const x = f.middle(bucket);
  const value = bucket[f.subject.key];
  const line = svg("line", { x1: x, x2: x, y1: f.above, y2: f.base });
  return value === null ? [line] : [line, svg("circle", { cx: x, cy: f.y(value), r: 3.5 })];
}
