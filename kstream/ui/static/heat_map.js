// Many partitions at a glance: a cell each, darker with more lag. Arrow keys go from cell to cell.

import { el, set, setText } from "./dom.js";
import { count } from "./format.js";

const SHADES = 6;

/** The shade of a number of records, 0 for none: each has four times those of the one before. @param {number} n @param {number} most */
export function shade(n, most) {
  if (n <= 0) return 0;
  const below = Math.log(most / n) / Math.log(4);
  return Math.max(1, SHADES - 1 - Math.floor(below + 1e-9));
}

export class HeatMap {
  /** @param {string} label */
  constructor(label) {
    /** @type {any[]} */
    this.cells = [];
    this.at = 0;
    this.grid = el("div", { class: "heat", role: "listbox", "aria-label": label });
    this.said = el("p", { class: "heat-said", "aria-live": "polite" });
    const scale = Array.from({ length: SHADES }, (_, n) => el("i", { class: `heat-${n}` }));
    const legend = el("p", { class: "heat-legend" }, "no lag ", scale, " most lag");
    this.node = el("div", { class: "heat-map" }, this.grid, el("div", { class: "heat-foot" }, this.said, legend));
    this.grid.addEventListener("keydown", (event) => this.key(event));
    this.grid.addEventListener("focusin", (event) => this.say(event.target));
    this.grid.addEventListener("pointerover", (event) => this.say(event.target));
    setText(this.said, "Point at a cell for its partition.");
  }

  /** @param {{name: string, records: number, text: string}[]} cells */
  update(cells) {
    this.cells = cells;
    const most = cells.reduce((a, cell) => Math.max(a, cell.records), 1);
    while (this.grid.children.length < cells.length) this.grid.append(el("span", { role: "option", tabindex: -1 }));
    while (this.grid.children.length > cells.length) this.grid.lastElementChild?.remove();
    cells.forEach((cell, at) => {
      const node = /** @type {HTMLElement} */ (this.grid.children[at]);
      if (node.title === cell.text && node.className === `heat-${shade(cell.records, most)}`) return;
      set(node, { class: `heat-${shade(cell.records, most)}`, title: cell.text, "aria-label": cell.text, "data-at": at });
    });
    this.move(Math.min(this.at, cells.length - 1), false);
  }

  /** @param {EventTarget | null} target */
  say(target) {
    const at = target instanceof HTMLElement ? target.dataset.at : undefined;
    if (at !== undefined && this.cells[Number(at)]) setText(this.said, this.cells[Number(at)].text);
  }

  /** Make a cell the one that the tab key reaches. @param {number} at @param {boolean} focus */
  move(at, focus) {
    this.grid.children[this.at]?.setAttribute("tabindex", "-1");
    this.at = Math.max(0, at);
    const node = /** @type {HTMLElement | undefined} */ (this.grid.children[this.at]);
    node?.setAttribute("tabindex", "0");
    if (focus) node?.focus();
  }

  /** How many cells stand in a row. */
  across() {
    const top = /** @type {HTMLElement | undefined} */ (this.grid.children[0])?.offsetTop;
    const next = [...this.grid.children].findIndex((node) => /** @type {HTMLElement} */ (node).offsetTop !== top);
    return next < 0 ? this.cells.length : next;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const last = this.cells.length - 1;
    const row = event.key === "ArrowUp" || event.key === "ArrowDown" ? this.across() : 0;
    const to = { ArrowLeft: this.at - 1, ArrowRight: this.at + 1, ArrowUp: this.at - row, ArrowDown: this.at + row, Home: 0, End: last }[
      event.key
    ];
    if (to === undefined) return;
    event.preventDefault();
    if (to >= 0 && to <= last) this.move(to, true);
  }
}

/** What a cell says. @param {string} topic @param {any} p a partition */
export const cellText = (topic, p) =>
  `${topic} ${p.partition}: ${count(p.records)} records behind, next offset ${count(p.offset)} of ${count(p.latest)}`;
