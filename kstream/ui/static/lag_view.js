// How far each input is behind the ends of its logs: in records and in time, by topic and by partition.

import { el, setText } from "./dom.js";
import { count, counted, duration, firstLine, short } from "./format.js";
import { cellText, HeatMap } from "./heat_map.js";
import { Table } from "./table.js";

const MOST_ROWS = 100;

export class LagView {
  constructor() {
    this.title = "Lag";
    /** @type {Map<number, StreamLag>} */
    this.streams = new Map();
    this.none = el(
      "section",
      { class: "card", hidden: true },
      el("h2", {}, "Lag"),
      el("p", { class: "empty" }, "No input reads a log, or none has been planned yet."),
    );
    this.list = el("div", { class: "view" });
    this.node = el("div", {}, this.none, this.list);
  }

  /** @returns {import("./poll.js").Want[]} */
  wants() {
    return [{ key: "lag", path: "lag" }];
  }

  /** @param {Map<string, any>} answers */
  update(answers) {
    const lags = answers.get("lag");
    if (!Array.isArray(lags)) return;
    this.none.hidden = lags.length > 0;
    const before = this.streams;
    this.streams = new Map(lags.map((lag) => [lag.stream, before.get(lag.stream) ?? new StreamLag()]));
    const isCounted = (answers.get("statistics")?.outageSinceMs ?? null) === null;
    for (const lag of lags) this.streams.get(lag.stream)?.update(lag, isCounted);
    if (before.size !== this.streams.size || [...this.streams.keys()].some((id) => !before.has(id))) {
      this.list.replaceChildren(...[...this.streams.values()].map((stream) => stream.node));
    }
  }
}

class StreamLag {
  constructor() {
    this.title = el("h2");
    this.sum = el("p", { class: "muted" });
    this.topics = new Table({
      label: "Lag of each topic",
      columns: [
        { title: "Topic", cell: (t) => t.topic, by: (t) => t.topic, kind: "wide" },
        { title: "Partitions", cell: (t) => count(t.partitions), by: (t) => t.partitions, kind: "num" },
        { title: "Lag in records", cell: lagCell, by: (t) => t.records, kind: "num" },
      ],
      keyOf: (t) => t.topic,
      sort: { column: 2, down: true },
      empty: "No topic.",
    });
    this.map = new HeatMap("Lag of each partition");
    this.partitions = new Table({
      label: "Lag of each partition",
      columns: [
        { title: "Topic", cell: (p) => p.topic, by: (p) => p.topic, kind: "wide" },
        { title: "Partition", cell: (p) => firstLine(p.partition, 24), by: (p) => p.partition, kind: "num" },
        {
          title: "Completed",
          cell: (p) => count(p.offset),
          by: (p) => p.offset,
          kind: "num",
          hint: "Where the first batch begins that has not succeeded",
        },
        { title: "End of the log", cell: (p) => count(p.latest), by: (p) => p.latest, kind: "num" },
        { title: "Lag in records", cell: lagCell, by: (p) => p.records, kind: "num" },
        {
          title: "Lag in time",
          cell: (p) => duration(p.seconds * 1000),
          by: (p) => p.seconds,
          kind: "num",
          hint: "For how long the oldest of these records has been in the log",
        },
      ],
      keyOf: (p) => `${p.topic} ${p.partition}`,
      sort: { column: 4, down: true },
      empty: "No partition.",
    });
    const tables = [el("h3", {}, "Topics"), this.topics.node, el("h3", {}, "Partitions"), this.map.node, this.partitions.node];
    this.body = el("div", {}, tables);
    this.node = el("section", { class: "card" }, this.title, this.sum, this.body);
  }

  /** @param {any} lag @param {boolean} isCounted whether new records are counted: no outage is on */
  update(lag, isCounted) {
    const partitions = lag.topics.flatMap((topic) => topic.partitions.map((partition) => ({ topic: topic.topic, ...partition })));
    setText(this.title, lag.description || `Stream ${lag.stream}`);
    const waited = lag.seconds === null ? "how long they wait is not known" : `the oldest has waited ${duration(lag.seconds * 1000)}`;
    const unplanned = lag.unplanned === null ? "" : `, ${counted(lag.unplanned, "record")} in no batch yet`;
    const known = lag.records ? `${counted(lag.records, "record")} behind${unplanned}, ${waited}` : "at the ends of its logs";
    const behind = isCounted ? known : `${known}, when the outage began; nobody counts the records since`;
    const where = `${counted(partitions.length, "partition")} in ${counted(lag.topics.length, "topic")}`;
    const allowed = lag.rateLimit === null ? "" : ` · back-pressure allows ${counted(lag.rateLimit, "record")} a second`;
    setText(this.sum, `Stream ${lag.stream} · ${behind} · ${lag.topics.length ? where : "in which partitions is not known"}${allowed}`);
    this.body.hidden = lag.topics.length === 0;
    this.topics.update(withShare(lag.topics.map((t) => ({ topic: t.topic, records: t.records, partitions: t.partitions.length }))));
    this.map.node.hidden = partitions.length <= MOST_ROWS;
    if (partitions.length > MOST_ROWS) this.map.update(partitions.map((p) => ({ records: p.records, text: cellText(p.topic, p) })));
    this.partitions.update(withShare(partitions));
  }
}

/** The rows with their share of the largest lag among them. @param {any[]} rows */
function withShare(rows) {
  const most = rows.reduce((a, row) => Math.max(a, row.records), 1);
  return rows.map((row) => ({ ...row, share: Math.round((100 * row.records) / most) }));
}

/** @param {any} row */
function lagCell(row) {
  const bar = el("span", { class: "share" });
  bar.style.width = `${row.share}%`;
  return [row.records < 1e9 ? count(row.records) : short(row.records), el("span", { class: "shares" }, bar)];
}
