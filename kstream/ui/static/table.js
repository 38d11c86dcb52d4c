// A table that is renewed in place: rows keep their elements, so that focus, selection and scroll stay where they are.

import { el, set, setText } from "./dom.js";
import { count } from "./format.js";

/**
 * @typedef {object} Column
 * @property {string} title
 * @property {(row: any) => unknown} cell text or a node
 * @property {(row: any) => number | string | null} [by] by what the column sorts
 * @property {string} [kind] class of its cells: num, wide, code
 * @property {string} [hint] what the column means
 */

const FIRST_ROWS = 100;
const MORE_ROWS = 400;

export class Table {
  /**
   * @param {object} options
   * @param {string} options.label
   * @param {Column[]} options.columns
   * @param {(row: any) => string | number} options.keyOf
   * @param {string} options.empty what is said without a row
   * @param {{column: number, down: boolean}} [options.sort] how the rows are sorted; without it they stay in the order they come in
   */
  constructor({ label, columns, keyOf, empty, sort }) {
    this.columns = columns;
    this.keyOf = keyOf;
    this.sort = sort ?? null;
    this.most = FIRST_ROWS;
    /** @type {any[]} */
    this.rows = [];
    this.isKnown = false; // before the first rows nobody knows that there is none
    /** @type {Map<string, {tr: HTMLElement, of: string}>} */
    this.kept = new Map();
    this.heads = columns.map((column, at) => this.head(column, at));
    this.body = el("tbody");
    this.empty = el("p", { class: "empty" }, empty);
    this.more = el("button", { class: "more", type: "button" });
    this.more.addEventListener("click", () => this.showMore());
    const table = el("table", {}, el("caption", { class: "unseen" }, label), el("thead", {}, el("tr", {}, this.heads)), this.body);
    this.scroll = el("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": label }, table);
    this.node = el("div", { class: "table" }, this.scroll, this.empty, this.more);
    this.draw();
  }

  /** @param {Column} column @param {number} at */
  head(column, at) {
    const attributes = { scope: "col", class: column.kind, title: column.hint };
    if (!this.sort || !column.by) return el("th", attributes, column.title);
    const button = el("button", { class: "sorter", type: "button" }, column.title);
    button.addEventListener("click", () => this.sortBy(at));
    return el("th", attributes, button);
  }

  /** @param {any[] | undefined} rows nothing as long as they are not known */
  update(rows) {
    this.isKnown = rows !== undefined;
    this.rows = rows ?? [];
    this.draw();
  }

  /** @param {number} column */
  sortBy(column) {
    const down = this.sort?.column === column ? !this.sort.down : this.columns[column].kind === "num";
    this.sort = { column, down };
    this.draw();
  }

  showMore() {
    this.most += MORE_ROWS;
    this.draw();
  }

  draw() {
    const shown = this.sorted().slice(0, this.most);
    this.heads.forEach((head, at) => this.sort && set(head, { "aria-sort": this.order(at) }));
    this.place(shown);
    this.scroll.hidden = shown.length === 0;
    this.empty.hidden = shown.length > 0 || !this.isKnown;
    this.more.hidden = shown.length === this.rows.length;
    setText(this.more, `${count(shown.length)} of ${count(this.rows.length)} · show more`);
  }

  /** @param {number} at */
  order(at) {
    if (this.sort?.column !== at) return this.columns[at].by ? "none" : null;
    return this.sort.down ? "descending" : "ascending";
  }

  sorted() {
    if (!this.sort) return this.rows;
    const { column, down } = this.sort;
    const by = this.columns[column].by ?? this.keyOf;
    return [...this.rows].sort((a, b) => (down ? -1 : 1) * compared(by(a), by(b)));
  }

  /** @param {any[]} rows */
  place(rows) {
    const before = this.kept;
    this.kept = new Map();
    rows.forEach((row, at) => {
      const key = this.unusedKey(String(this.keyOf(row)));
      const of = JSON.stringify(row);
      const kept = before.get(key) ?? { tr: el("tr"), of: "" };
      if (kept.of !== of) fill(kept.tr, this.columns, row);
      this.kept.set(key, { tr: kept.tr, of });
      if (this.body.children[at] !== kept.tr) this.body.insertBefore(kept.tr, this.body.children[at] ?? null);
    });
    while (this.body.children.length > rows.length) this.body.lastElementChild?.remove();
  }

  /** Rows may be equal, such as the same warning twice in a millisecond. @param {string} key */
  unusedKey(key) {
    for (let again = 1; ; again += 1) {
      const numbered = `${again} ${key}`;
      if (!this.kept.has(numbered)) return numbered;
    }
  }
}

/** @param {HTMLElement} tr @param {Column[]} columns @param {any} row */
function fill(tr, columns, row) {
  const cells = columns.map((column) => el("td", { class: column.kind }, bounded(column.kind, column.cell(row))));
  tr.replaceChildren(...cells);
}

/** Text of any length has a height of its own. @param {string | undefined} kind @param {unknown} content */
function bounded(kind, content) {
  return kind?.includes("wide") ? el("div", { class: "bound" }, content) : content;
}

/** @param {number | string | null} a @param {number | string | null} b what is not known is least */
function compared(a, b) {
  if (a === null || b === null) return a === b ? 0 : a === null ? -1 : 1;
  if (typeof a === "string" || typeof b === "string") return String(a).localeCompare(String(b), "en", { numeric: true });
  return a - b;
}
