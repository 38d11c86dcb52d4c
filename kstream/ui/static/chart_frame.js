// Where everything in a chart stands: its scales, and the buckets it shows. Pure.

import { durationStep, stepFor, ticksTo } from "./scale.js";

/**
 * @typedef {object} Subject what a chart shows
 * @property {string} title
 * @property {string} key the field of a bucket
 * @property {boolean} rate records a second; else milliseconds, with the batch interval as a bound
 * @property {string} [highest] the field of the highest value in the bucket
 */

/**
 * @typedef {object} Frame
 * @property {Subject} subject
 * @property {any[]} buckets oldest first
 * @property {any[]} known the buckets in which the value is known
 * @property {number} interval of the batches, in milliseconds
 * @property {number} hole a longer time without a value is a hole in the line
 * @property {[number, number]} span the moments at both ends
 * @property {number[]} ticks of the values, from 0
 * @property {number} top the last of them
 * @property {number} width @property {number} height
 * @property {number} left @property {number} right of the plot; the histogram is at the right of it
 * @property {number} above @property {number} base of the plot
 * @property {(ms: number) => number} x
 * @property {(value: number) => number} y
 * @property {(bucket: any) => number} middle of a bucket, as x
 */

export const HEIGHT = 168;
const ABOVE = 10;
const BELOW = 22;
const LEFT = 46;
const GAP = 10;
const BARS = 44;
const LEAST_SPAN_MS = 2 * 60000;
const HOUR_MS = 3600000;
const TICKS = 3;
const AIR = 1.08;
const HOLE_BUCKETS = 2.5;

/**
 * @param {Subject} subject
 * @param {{bucketMs: number, buckets: any[]}} timeline
 * @param {number} now @param {number} interval @param {number} width
 * @returns {Frame}
 */
export function frameOf(subject, { bucketMs, buckets }, now, interval, width) {
  const known = buckets.filter((bucket) => bucket[subject.key] !== null);
  const [from, until] = spanOf(buckets, bucketMs, now);
  const ticks = ticksOf(subject, known, interval);
  const top = ticks[ticks.length - 1];
  const right = width - BARS - GAP;
  const base = HEIGHT - BELOW;
  const x = (/** @type {number} */ ms) => tenth(LEFT + ((ms - from) / (until - from)) * (right - LEFT));
  const y = (/** @type {number} */ value) => tenth(base - (value / top) * (base - ABOVE));
  const middle = (/** @type {any} */ bucket) => x(bucket.timeMs + bucketMs / 2);
  const hole = HOLE_BUCKETS * Math.max(bucketMs, interval);
  const places = { width, height: HEIGHT, left: LEFT, right, above: ABOVE, base };
  return { subject, buckets, known, interval, hole, span: [from, until], ticks, top, ...places, x, y, middle };
}

/** The last hour, or less for a job that is younger. @param {any[]} buckets @returns {[number, number]} */
function spanOf(buckets, /** @type {number} */ bucketMs, /** @type {number} */ now) {
  const first = buckets[0]?.timeMs ?? now;
  const until = Math.max(now, (buckets.at(-1)?.timeMs ?? 0) + bucketMs);
  return [Math.max(until - HOUR_MS - bucketMs, Math.min(first, until - LEAST_SPAN_MS)), until];
}

/** @param {Subject} subject @param {any[]} known @param {number} interval */
function ticksOf(subject, known, interval) {
  const values = known.map((bucket) => bucket[subject.highest ?? subject.key] ?? 0);
  const most = AIR * values.reduce((a, b) => Math.max(a, b), subject.rate ? 1 : interval);
  return ticksTo(most, subject.rate ? stepFor(most, TICKS) : durationStep(most, TICKS));
}

/** @param {number} n */
export const tenth = (n) => Math.round(n * 10) / 10;
