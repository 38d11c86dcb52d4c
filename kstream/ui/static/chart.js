// A chart of the last hour: a line by bucket, the batch interval as a bound, failed batches as marks, and how often each value came.

import { el, set, setText, svg } from "./dom.js";
import { clock, count, counted, duration, durationParts, hour, short } from "./format.js";
import { durationStep, histogram, momentsIn, stepFor, ticksTo } from "./scale.js";

/**
 * @typedef {object} Subject what a chart shows
 * @property {string} title
 * @property {string} key the field of a bucket
 * @property {boolean} rate records a second; else milliseconds, with the batch interval as a bound
 * @property {string} [highest] the field of the highest value in the bucket
 */

const HEIGHT = 168;
const TOP = 10;
const BOTTOM = 22;
const LEFT = 46;
const BARS = 44;
const GAP = 10;
const BINS = 12;
const LEAST_SPAN_MS = 2 * 60000;
const HOUR_MS = 3600000;
let charts = 0;

export class Chart {
  /** @param {Subject} subject */
  constructor(subject) {
    this.subject = subject;
    this.clip = `over-${(charts += 1)}`;
    /** @type {any[]} */
    this.buckets = [];
    this.at = -1;
    this.interval = 0;
    this.bucketMs = 1;
    this.now = 0;
    this.current = el("span", { class: "chart-now" });
    this.tip = el("div", { class: "tip", hidden: true, "aria-live": "polite" });
    this.picture = svg("svg", { role: "img", height: HEIGHT });
    this.plot = el("div", { class: "plot", tabindex: 0, role: "group" }, this.picture, this.tip);
    this.node = el(
      "section",
      { class: "card chart" },
      el("div", { class: "chart-head" }, el("h3", {}, subject.title), this.current),
      this.plot,
    );
    this.listen();
  }

  listen() {
    this.plot.addEventListener("pointermove", (event) => this.point(this.nearest(event.clientX - this.plot.getBoundingClientRect().left)));
    this.plot.addEventListener("pointerleave", () => this.point(-1));
    this.plot.addEventListener("blur", () => this.point(-1));
    this.plot.addEventListener("focus", () => this.plot.matches(":focus-visible") && this.point(this.buckets.length - 1));
    this.plot.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  /** @param {{bucketMs: number, buckets: any[]}} timeline @param {number} now @param {number} interval of the batches, in milliseconds */
  update(timeline, now, interval) {
    this.buckets = timeline.buckets;
    this.bucketMs = timeline.bucketMs;
    this.now = now;
    this.interval = interval;
    this.draw();
  }

  draw() {
    this.width = this.plot.clientWidth;
    if (this.width < 120 || this.now === 0) return;
    this.measure();
    this.picture.replaceChildren(...this.axes(), ...this.values(), ...this.bars(), (this.cursor = svg("g", { class: "cursor" })));
    set(this.picture, { viewBox: `0 0 ${this.width} ${HEIGHT}`, width: this.width, "aria-label": this.summary() });
    set(this.plot, { "aria-label": `${this.subject.title}: arrow keys show the values` });
    const last = this.known().at(-1);
    setText(this.current, last ? this.text(last[this.subject.key]) : "no batch yet");
    this.point(Math.min(this.at, this.buckets.length - 1));
  }

  /** Scales: `this.x(ms)` and `this.y(value)`. */
  measure() {
    const right = this.width - BARS - GAP;
    const first = this.buckets[0]?.timeMs ?? this.now;
    const until = Math.max(this.now, (this.buckets.at(-1)?.timeMs ?? 0) + this.bucketMs);
    const from = Math.max(until - HOUR_MS - this.bucketMs, Math.min(first, until - LEAST_SPAN_MS));
    const values = this.known().map((bucket) => bucket[this.subject.highest ?? this.subject.key] ?? 0);
    const most = values.reduce((a, b) => Math.max(a, b), this.subject.rate ? 1 : this.interval);
    const step = this.subject.rate ? stepFor(most * 1.08, 3) : durationStep(most * 1.08, 3);
    this.ticks = ticksTo(most * 1.08, step);
    this.top = this.ticks[this.ticks.length - 1];
    this.span = [from, until];
    this.right = right;
    this.x = (/** @type {number} */ ms) => round(LEFT + ((ms - from) / (until - from)) * (right - LEFT));
    this.y = (/** @type {number} */ value) => round(HEIGHT - BOTTOM - (value / this.top) * (HEIGHT - BOTTOM - TOP));
  }

  /** The buckets in which the value is known. */
  known() {
    return this.buckets.filter((bucket) => bucket[this.subject.key] !== null);
  }

  middle(/** @type {any} */ bucket) {
    return bucket.timeMs + this.bucketMs / 2;
  }

  axes() {
    const lines = this.ticks.flatMap((tick) => [
      svg("line", { class: tick === 0 ? "axis" : "grid", x1: LEFT, x2: this.right, y1: this.y(tick), y2: this.y(tick) }),
      svg("text", { class: "tick", x: LEFT - 8, y: this.y(tick) + 4, "text-anchor": "end" }, this.subject.rate || tick === 0 ? short(tick) : duration(tick)),
    ]);
    const moments = momentsIn(this.span[0], this.span[1], Math.max(2, (this.right - LEFT) / 80));
    const inside = moments.filter((ms) => this.x(ms) > LEFT + 14 && this.x(ms) < this.right - 14);
    const times = inside.map((ms) => svg("text", { class: "tick", x: this.x(ms), y: HEIGHT - 5, "text-anchor": "middle" }, hour(ms)));
    return [...lines, ...times];
  }

  values() {
    const line = this.path(this.subject.key);
    const parts = [svg("path", { class: "area", d: this.area() }), svg("path", { class: "line", d: line })];
    if (this.subject.highest) parts.unshift(svg("path", { class: "highest", d: this.path(this.subject.highest) }));
    if (!this.subject.rate) parts.push(...this.bound(line));
    parts.push(svg("path", { class: "failed", d: this.failures() }));
    return parts;
  }

  /** The batch interval, and once more in another colour what is above it. @param {string} line */
  bound(line) {
    const at = this.y(this.interval);
    return [
      svg("clipPath", { id: this.clip }, svg("rect", { x: 0, y: 0, width: this.width, height: Math.max(0, at - 0.5) })),
      svg("path", { class: "line above", d: line, "clip-path": `url(#${this.clip})` }),
      svg("line", { class: "interval", x1: LEFT, x2: this.right, y1: at, y2: at }),
      svg("text", { class: "interval-name", x: LEFT + 4, y: at - 5 }, `interval ${duration(this.interval)}`),
    ];
  }

  /** Runs of buckets without a hole between them. A bucket stands alone where batches are rarer than buckets. */
  runs(/** @type {string} */ key) {
    const hole = 2.5 * Math.max(this.bucketMs, this.interval);
    /** @type {any[][]} */
    const runs = [];
    let before = -Infinity;
    for (const bucket of this.buckets) {
      if (bucket[key] === null) continue;
      if (bucket.timeMs - before > hole) runs.push([]);
      runs[runs.length - 1].push(bucket);
      before = bucket.timeMs;
    }
    return runs;
  }

  path(/** @type {string} */ key) {
    const point = (/** @type {any} */ bucket) => `${this.x(this.middle(bucket))} ${this.y(bucket[key])}`;
    return this.runs(key).map((run) => (run.length === 1 ? `M${point(run[0])}h1` : `M${run.map(point).join("L")}`)).join("");
  }

  area() {
    const key = this.subject.key;
    const base = this.y(0);
    return this.runs(key)
      .map((run) => {
        const points = run.map((bucket) => `L${this.x(this.middle(bucket))} ${this.y(bucket[key])}`).join("");
        return `M${this.x(this.middle(run[0]))} ${base}${points}L${this.x(this.middle(run[run.length - 1]))} ${base}Z`;
      })
      .join("");
  }

  /** A dot for each bucket with a failed batch. */
  failures() {
    const dot = (/** @type {any} */ b) => `M${this.x(this.middle(b)) - 3} ${this.y(b[this.subject.key] ?? 0)}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0`;
    return this.buckets.filter((bucket) => bucket.numFailed > 0).map(dot).join("");
  }

  /** The histogram at the right: how many batches had such a value. */
  bars() {
    const known = this.known();
    const counts = histogram(known.map((bucket) => [bucket[this.subject.key], bucket.numBatches]), this.top, BINS);
    const most = Math.max(1, ...counts);
    const left = this.right + GAP;
    const height = (HEIGHT - BOTTOM - TOP) / BINS;
    const bar = (/** @type {number} */ n, /** @type {number} */ at) =>
      svg("rect", { class: "bin", x: left, y: round(HEIGHT - BOTTOM - (at + 1) * height + 1), height: round(height - 2), width: round((n / most) * BARS), rx: 1 });
    const base = svg("line", { class: "axis", x1: left, x2: left, y1: TOP, y2: HEIGHT - BOTTOM });
    return [base, ...counts.map((n, at) => (n > 0 ? bar(n, at) : null)).filter((node) => node !== null)];
  }

  /** @param {number} x @returns {number} the bucket that is nearest, or -1 */
  nearest(x) {
    if (!this.x || x > this.right + 4) return -1;
    let best = -1;
    let distance = Infinity;
    this.buckets.forEach((bucket, at) => {
      const off = Math.abs(this.x(this.middle(bucket)) - x);
      if (off < distance) [best, distance] = [at, off];
    });
    return best;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const last = this.buckets.length - 1;
    const to = { ArrowLeft: Math.max(0, this.at - 1), ArrowRight: Math.min(last, this.at + 1), Home: 0, End: last, Escape: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.point(to);
  }

  /** Show the values of a bucket; -1 for none. @param {number} at */
  point(at) {
    this.at = at;
    const bucket = this.buckets[at];
    this.tip.hidden = bucket === undefined;
    this.cursor?.replaceChildren();
    if (bucket === undefined || !this.x) return;
    const x = this.x(this.middle(bucket));
    const value = bucket[this.subject.key];
    this.cursor.append(svg("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
    if (value !== null) this.cursor.append(svg("circle", { cx: x, cy: this.y(value), r: 3.5 }));
    this.tip.replaceChildren(...this.lines(bucket).map(([name, text], n) => el("div", { class: n ? "" : "tip-time" }, name, el("b", {}, text))));
    const left = x > this.width / 2 ? x - this.tip.offsetWidth - 12 : x + 12;
    this.tip.style.left = `${Math.max(0, Math.min(left, this.width - this.tip.offsetWidth))}px`;
  }

  /** @param {any} bucket @returns {[string, string][]} */
  lines(bucket) {
    const { key, title, highest } = this.subject;
    const lines = [
      ["", `${clock(bucket.timeMs)} – ${clock(bucket.timeMs + this.bucketMs)}`],
      [title, this.text(bucket[key])],
      highest && bucket.numBatches > 1 ? ["Highest", this.text(bucket[highest])] : null,
      ["Records", count(bucket.numRecords)],
      ["Batches", count(bucket.numBatches)],
      bucket.numFailed ? ["Failed", count(bucket.numFailed)] : null,
      bucket.lagRecords === null || !this.subject.rate ? null : ["Lag", short(bucket.lagRecords)],
    ];
    return /** @type {[string, string][]} */ (lines.filter((line) => line !== null && line !== false && line !== undefined));
  }

  /** @param {number | null} value */
  text(value) {
    if (value === null || value === undefined) return "–";
    return this.subject.rate ? `${short(value)} /s` : durationParts(value).join(" ");
  }

  /** One sentence about the chart, for those who do not see it. */
  summary() {
    const known = this.known();
    if (known.length === 0) return `${this.subject.title}: no batch has ended yet`;
    const values = known.map((bucket) => bucket[this.subject.key]);
    const failed = this.buckets.reduce((sum, bucket) => sum + bucket.numFailed, 0);
    const parts = [
      `${this.subject.title} since ${hour(known[0].timeMs)}`,
      `now ${this.text(values[values.length - 1])}`,
      `highest ${this.text(values.reduce((a, b) => Math.max(a, b), 0))}`,
      this.subject.rate ? null : `batch interval ${duration(this.interval)}`,
      failed ? counted(failed, "failed batch", "failed batches") : null,
    ];
    return parts.filter((part) => part !== null).join(", ");
  }
}

const round = (/** @type {number} */ n) => Math.round(n * 10) / 10;
