// Asks for what the open view needs, again and again: rarely while nobody looks, more and more slowly while the driver is silent.

import { NoAnswer } from "./api.js";

const EVERY_MS = 2000;
const HIDDEN_MS = 30000;
const SLOWEST_MS = 15000;

/** @typedef {{key: string, path: string, everyMs?: number}} Want what to ask for, and how often; each round if that is not said */
/** @typedef {{answeredMs: number | null, failure: NoAnswer | null, nextMs: number}} Contact how the last round went */

export class Poller {
  /**
   * @param {(path: string) => Promise<any>} ask
   * @param {() => Want[]} wants what is needed now
   * @param {(answers: Map<string, any>) => void} show called with the new answers of a round; one that was not found is a NoAnswer
   * @param {(contact: Contact) => void} tell called after each round
   */
  constructor(ask, wants, show, tell) {
    this.ask = ask;
    this.wants = wants;
    this.show = show;
    this.tell = tell;
    /** @type {Contact} */
    this.contact = { answeredMs: null, failure: null, nextMs: EVERY_MS };
    this.asked = new Map();
    this.timer = 0;
    this.round = 0;
    document.addEventListener("visibilitychange", () => this.wake());
  }

  /** Ask now, and forget what was asked before: another view is open, or somebody looks again. */
  wake() {
    this.asked.clear();
    this.round += 1; // what an earlier round brings comes too late
    this.run(this.round);
  }

  /** @param {number} round */
  async run(round) {
    clearTimeout(this.timer);
    const failure = await this.once(round);
    if (round !== this.round) return;
    const answeredMs = failure === null ? Date.now() : this.contact.answeredMs;
    this.contact = { answeredMs, failure, nextMs: this.pause(failure) };
    this.tell(this.contact);
    this.timer = setTimeout(() => this.run(round), this.contact.nextMs);
  }

  /** One round. @param {number} round @returns {Promise<NoAnswer | null>} why there was no answer */
  async once(round) {
    const due = this.wants().filter((want) => Date.now() - (this.asked.get(want.path) ?? 0) >= (want.everyMs ?? 0));
    try {
      const [first, ...rest] = due; // after a failure one request tries whether the driver is back
      const early = this.contact.failure !== null && first ? [await this.answer(first)] : [];
      const late = await Promise.all((early.length ? rest : due).map((want) => this.answer(want)));
      const answers = new Map([...early, ...late]);
      if (round !== this.round) return null;
      for (const want of due) this.asked.set(want.path, Date.now());
      this.show(answers);
      return null;
    } catch (failure) {
      if (failure instanceof NoAnswer) return failure;
      throw failure;
    }
  }

  /** @param {Want} want @returns {Promise<[string, any]>} */
  async answer(want) {
    try {
      return [want.key, await this.ask(want.path)];
    } catch (failure) {
      if (failure instanceof NoAnswer && failure.status === 404) return [want.key, failure];
      throw failure;
    }
  }

  /** @param {NoAnswer | null} failure */
  pause(failure) {
    if (document.hidden) return HIDDEN_MS;
    if (failure === null || this.contact.failure === null) return EVERY_MS;
    return Math.min(SLOWEST_MS, this.contact.nextMs * 1.5);
  }
}
