// Numbers, durations and moments as people read them. Pure, but for the time zone of the browser.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const NONE = "–";

/** All digits. @param {number | null | undefined} n */
export const count = (n) => (n === null || n === undefined ? NONE : WHOLE.format(n));

/** Few digits: 1,203 or 1.2M. @param {number | null | undefined} n */
export function short(n) {
  if (n === null || n === undefined) return NONE;
  if (n !== 0 && Math.abs(n) < 10 && !Number.isInteger(n)) return n.toFixed(1);
  return Math.abs(n) < 100000 ? WHOLE.format(n) : SHORT.format(n);
}

/** `1 batch`, `2 batches`. @param {number} n @param {string} one @param {string} [many] */
export const counted = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** A duration as its figure and its unit. @param {number | null | undefined} ms @returns {[string, string]} */
export function durationParts(ms) {
  if (ms === null || ms === undefined) return [NONE, ""];
  const size = Math.abs(ms);
  if (size < 1000) return [size > 0 && size < 10 && !Number.isInteger(ms) ? ms.toFixed(1) : String(Math.round(ms)), "ms"];
  if (size < 10000) return [trimmed(ms / 1000, 2), "s"];
  if (size < 60000) return [trimmed(ms / 1000, 1), "s"];
  const s = Math.round(size / 1000);
  if (s < 3600) return [`${Math.floor(s / 60)} min ${s % 60}`, "s"];
  if (s < 48 * 3600) return [`${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)}`, "min"];
  return [`${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)}`, "h"];
}

const trimmed = (/** @type {number} */ n, /** @type {number} */ digits) => String(Number(n.toFixed(digits)));

/** A duration as text: `340 ms`, `1.2 s`, `4 min 10 s`. @param {number | null | undefined} ms */
export const duration = (ms) => durationParts(ms).join(" ").trim();

const two = (/** @type {number} */ n) => String(n).padStart(2, "0");

/** The day: 2026-11-24. @param {number} ms */
export function day(ms) {
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

/** The time of day, with milliseconds where there are some. @param {number} ms */
export function clock(ms) {
  const at = new Date(ms);
  const rest = at.getMilliseconds();
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}${rest ? `.${String(rest).padStart(3, "0")}` : ""}`;
}

/** Hours and minutes. @param {number} ms */
export const hour = (ms) => clock(ms).slice(0, 5);

/** The time of day, with the day if it is not that of `now`. @param {number | null} ms @param {number} now */
export function moment(ms, now) {
  if (ms === null || ms === undefined) return NONE;
  return day(ms) === day(now) ? clock(ms) : `${day(ms)} ${clock(ms)}`;
}

/** A moment for machines and for titles, in UTC. @param {number} ms */
export const iso = (ms) => (Number.isFinite(ms) && Math.abs(ms) < 8.64e15 ? new Date(ms).toISOString() : String(ms));

/** The time zone in which this page shows times. */
export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";

/** The first line of a text, not longer than `most`. @param {unknown} text */
export function firstLine(text, most = 300) {
  const line = String(text ?? "").split("\n", 1)[0];
  return line.length > most ? `${line.slice(0, most)}…` : line;
}
