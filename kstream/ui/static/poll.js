// Asks for what the open view needs, again and again: rarely while nobody looks, more and more slowly while the driver is silent.

import { NoAnswer } from "./api.js";

const EVERY_MS = 2000;
const HIDDEN_MS = 30000;
const SLOWEST_MS = 15000;
const LATE_MS = 1000; // a round waits so long for answers beside the first; a later one is shown with the next round

/**
 * @typedef {object} Want what to ask for
 * @property {string} key
 * @property {string} path
 * @property {number} [everyMs] how often; each round if that is not said
 * @property {boolean} [mayMiss] whether it may not be there: then 404 is an answer
 */
/** @typedef {{answeredMs: number | null, failure: NoAnswer | null, nextMs: number}} Contact how the last round went */

/** What is asked for since the page was woken: another turn knows nothing of it. */
class Turn {
  constructor() {
    /** @type {Map<string, number>} */
    this.shownMs = new Map(); // by path
    /** @type {Set<string>} */
    this.awaited = new Set();
    /** @type {{want: Want, answer: any}[]} */
    this.arrived = [];
  }

  /** @param {Want} want */
  isDue({ path, everyMs }) {
    return !this.awaited.has(path) && Date.now() - (this.shownMs.get(path) ?? 0) >= (everyMs ?? 0);
  }

  /** What has arrived and is not shown yet. A failure counts as not asked for. */
  take() {
    const answers = new Map();
    const failures = new Map();
    for (const { want, answer } of this.arrived) {
      const isFailure = answer instanceof NoAnswer && !(want.mayMiss && answer.status === 404);
      (isFailure ? failures : answers).set(want.key, answer);
      if (!isFailure) this.shownMs.set(want.path, Date.now());
    }
    this.arrived = [];
    return { answers, failures };
  }
}

export class Poller {
  /**
   * @param {(path: string) => Promise<any>} ask
   * @param {() => Want[]} wants what is needed now; the first tells whether the driver answers
   * @param {(answers: Map<string, any>, failures: Map<string, NoAnswer>) => void} show called with what is new after a round
   * @param {(contact: Contact) => void} tell called after each round
   */
  constructor(ask, wants, show, tell) {
    this.ask = ask;
    this.wants = wants;
    this.show = show;
    this.tell = tell;
    /** @type {Contact} */
    this.contact = { answeredMs: null, failure: null, nextMs: EVERY_MS };
    this.turn = new Turn();
    this.timer = 0;
    document.addEventListener("visibilitychange", () => this.wake());
  }

  /** Ask now, and forget what was asked before: another view is open, or somebody looks again. */
  wake() {
    this.turn = new Turn(); // what an earlier turn brings comes too late
    this.run(this.turn);
  }

  /** Ask for everything in the next round: what was shown is of another driver. */
  forget() {
    this.turn.shownMs.clear();
  }

  /** @param {Turn} turn */
  async run(turn) {
    clearTimeout(this.timer);
    const failure = await this.once(turn).catch(notShown);
    if (turn !== this.turn) return;
    const answeredMs = failure === null ? Date.now() : this.contact.answeredMs;
    this.contact = { answeredMs, failure, nextMs: this.pause(failure) };
    this.tell(this.contact);
    this.timer = setTimeout(() => this.run(turn), this.contact.nextMs);
  }

  /** One round. @param {Turn} turn @returns {Promise<NoAnswer | null>} why there was no answer */
  async once(turn) {
    const [first, ...rest] = this.wants().filter((want) => turn.isDue(want));
    const isBack = this.contact.failure !== null; // after a failure one request tries whether the driver is back
    const early = isBack ? [] : rest.map((want) => this.answer(turn, want));
    const state = await this.answer(turn, first);
    if (state instanceof NoAnswer) {
      turn.arrived = [];
      return state;
    }
    const others = isBack ? rest.map((want) => this.answer(turn, want)) : early;
    await Promise.race([Promise.all(others), new Promise((go) => setTimeout(go, LATE_MS))]);
    if (turn !== this.turn) return null;
    const { answers, failures } = turn.take();
    this.show(answers, failures);
    return null;
  }

  /** @param {Turn} turn @param {Want} want @returns {Promise<any>} the answer, or NoAnswer */
  async answer(turn, want) {
    turn.awaited.add(want.path);
    const answer = await this.ask(want.path).catch((failure) => (failure instanceof NoAnswer ? failure : notShown(failure)));
    turn.awaited.delete(want.path);
    turn.arrived.push({ want, answer });
    return answer;
  }

  /** @param {NoAnswer | null} failure */
  pause(failure) {
    if (document.hidden) return HIDDEN_MS;
    if (failure === null || this.contact.failure === null) return EVERY_MS;
    return Math.min(SLOWEST_MS, this.contact.nextMs * 1.5);
  }
}

/** An error of the page itself: the console has it, and the page goes on. @param {unknown} error */
function notShown(error) {
  reportError(error);
  return new NoAnswer(0, "The page cannot show what the driver says.");
}
