// Where values stand in a chart, and which ticks people like to read. Pure.

const MINUTE = 60000;
const TIMES_MS = [1, 2, 5, 10, 15, 20, 30].map((n) => n * MINUTE);
const LONG_MS = [1, 2, 5, 10, 15, 20, 30]
  .map((n) => n * 1000)
  .concat([1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 720, 1440].map((n) => n * MINUTE));

/** A step so that about `parts` of them reach `top`: 1, 2 or 5 times a power of ten. @param {number} top @param {number} parts */
export function stepFor(top, parts) {
  const least = Math.max(top, 1e-9) / parts;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= least * 0.999) ?? 10 * power;
}

/** The same for durations, where a minute has sixty seconds. @param {number} top @param {number} parts */
export function durationStep(top, parts) {
  if (top / parts <= 1000) return stepFor(top, parts);
  return LONG_MS.find((step) => step >= top / parts) ?? stepFor(top, parts);
}

/** Ticks from 0 to the first one not below `top`. @param {number} top @param {number} step */
export function ticksTo(top, step) {
  const parts = Math.max(1, Math.ceil(top / step - 1e-9));
  return Array.from({ length: parts + 1 }, (_, n) => n * step);
}

/** Moments for an axis of time, full minutes. @param {number} from @param {number} until @param {number} most */
export function momentsIn(from, until, most) {
  const step = TIMES_MS.find((ms) => (until - from) / ms <= most) ?? TIMES_MS[TIMES_MS.length - 1];
  const first = Math.ceil(from / step) * step;
  return Array.from({ length: Math.max(0, Math.floor((until - first) / step) + 1) }, (_, n) => first + n * step);
}

/** How many of the weights lie in each of `parts` equal parts of 0 to `top`. @param {[number, number][]} weighted value and weight */
export function histogram(weighted, top, parts) {
  const counts = new Array(parts).fill(0);
  for (const [value, weight] of weighted) counts[Math.min(parts - 1, Math.max(0, Math.floor((value / top) * parts)))] += weight;
  return counts;
}
