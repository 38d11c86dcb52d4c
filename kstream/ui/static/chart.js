// A chart of the last hour: the values by bucket with the batch interval as a bound. Pointer and arrow keys show the values of a bucket.

import { frameOf, HEIGHT } from "./chart_frame.js";
import { axes, bars, pointer, values } from "./chart_shapes.js";
import { el, set, setText, svg } from "./dom.js";
import { clock, count, counted, duration, hour, short } from "./format.js";

const LEAST_WIDTH = 120;
const TIP_AWAY = 12;

export class Chart {
  /** @param {import("./chart_frame.js").Subject} subject */
  constructor(subject) {
    this.subject = subject;
    /** @type {import("./chart_frame.js").Frame | null} */
    this.frame = null;
    /** @type {{timeline: {bucketMs: number, buckets: any[]}, now: number, interval: number} | null} */
    this.shown = null;
    this.at = -1;
    this.current = el("span", { class: "chart-now" });
    this.tip = el("div", { class: "tip", hidden: true, "aria-live": "polite" });
    this.cursor = svg("g", { class: "cursor" });
    this.picture = svg("svg", { role: "img", height: HEIGHT });
    const label = `${subject.title}: arrow keys show the values`;
    this.plot = el("div", { class: "plot", tabindex: 0, role: "group", "aria-label": label }, this.picture, this.tip);
    const head = el("div", { class: "chart-head" }, el("h3", {}, subject.title), this.current);
    this.node = el("section", { class: "card chart" }, head, this.plot);
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

  get buckets() {
    return this.shown?.timeline.buckets ?? [];
  }

  /** @param {{bucketMs: number, buckets: any[]}} timeline @param {number} now @param {number} interval of the batches, in milliseconds */
  update(timeline, now, interval) {
    this.shown = { timeline, now, interval };
    this.draw();
  }

  draw() {
    const width = this.plot.clientWidth;
    if (width < LEAST_WIDTH || this.shown === null) return;
    const { timeline, now, interval } = this.shown;
    const frame = frameOf(this.subject, timeline, now, interval, width);
    this.frame = frame;
    this.picture.replaceChildren(...axes(frame), ...values(frame), ...bars(frame), this.cursor);
    set(this.picture, { viewBox: `0 0 ${width} ${HEIGHT}`, width, "aria-label": this.summary(frame) });
    const last = frame.known.at(-1);
    setText(this.current, last ? this.text(last[this.subject.key]) : "no batch yet");
    this.point(Math.min(this.at, this.buckets.length - 1));
  }

  /** @param {number} x @returns {number} the bucket that is nearest, or -1 */
  nearest(x) {
    const frame = this.frame;
    if (frame === null || x > frame.right + 4) return -1;
    let best = -1;
    let distance = Infinity;
    this.buckets.forEach((bucket, at) => {
      const off = Math.abs(frame.middle(bucket) - x);
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
    this.cursor.replaceChildren();
    if (bucket === undefined || this.frame === null) return;
    this.cursor.append(...pointer(this.frame, bucket));
    this.tip.replaceChildren(
      ...this.lines(bucket).map(([name, text]) => el("div", { class: name ? "" : "tip-time" }, name, el("b", {}, text))),
    );
    this.placeTip(this.frame.middle(bucket), this.frame.width);
  }

  /** @param {number} x @param {number} width */
  placeTip(x, width) {
    const own = this.tip.offsetWidth;
    const left = x > width / 2 ? x - own - TIP_AWAY : x + TIP_AWAY;
    this.tip.style.left = `${Math.max(0, Math.min(left, width - own))}px`;
  }

  /** @param {any} bucket @returns {[string, string][]} */
  lines(bucket) {
    const { key, title, highest, rate } = this.subject;
    const bucketMs = this.shown?.timeline.bucketMs ?? 0;
    /** @type {[string, string][]} */
    const lines = [
      ["", `${clock(bucket.timeMs)} – ${clock(bucket.timeMs + bucketMs)}`],
      [title, this.text(bucket[key])],
    ];
    if (highest && bucket.numBatches > 1) lines.push(["Highest", this.text(bucket[highest])]);
    lines.push(["Records", count(bucket.numRecords)], ["Batches", count(bucket.numBatches)]);
    if (bucket.numFailed) lines.push(["Failed", count(bucket.numFailed)]);
    if (rate && bucket.lagRecords !== null) lines.push(["Lag", short(bucket.lagRecords)]);
    return lines;
  }

  /** @param {number | null} value */
  text(value) {
    if (value === null || value === undefined) return "–";
    return this.subject.rate ? `${short(value)} /s` : duration(value);
  }

  /** One sentence about the chart, for those who do not see it. @param {import("./chart_frame.js").Frame} frame */
  summary({ known, buckets, interval }) {
    const { title, key, rate } = this.subject;
    if (known.length === 0) return `${title}: no batch has ended yet`;
    const failed = buckets.reduce((sum, bucket) => sum + bucket.numFailed, 0);
    const highest = known.reduce((a, bucket) => Math.max(a, bucket[key]), 0);
    const parts = [
      `${title} since ${hour(known[0].timeMs)}`,
      `now ${this.text(known[known.length - 1][key])}`,
      `highest ${this.text(highest)}`,
      ...(rate ? [] : [`batch interval ${duration(interval)}`]),
      ...(failed ? [counted(failed, "failed batch", "failed batches")] : []),
    ];
    return parts.join(", ");
  }
}
