// The JSON of the driver. Addresses are relative, so the page works below a path of a proxy, too.

const SILENCE_MS = 10000;
const AGAIN_MS = 500;

/** An answer that is no data: `status` is 0 if there was none. */
export class NoAnswer extends Error {
  /** @param {number} status @param {string} text */
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** The JSON at an address. @param {string} path @returns {Promise<any>} @throws {NoAnswer} */
export async function get(path) {
  const answer = await asked(path)
    .catch((failure) => {
      if (failure.name === "TimeoutError") throw failure;
      return asked(path, AGAIN_MS); // a driver closes connections for which it has no room
    })
    .catch(() => {
      throw new NoAnswer(0, "The driver does not answer.");
    });
  let body;
  try {
    body = await answer.json();
  } catch {
    body = null;
  }
  if (!answer.ok) throw new NoAnswer(answer.status, typeof body?.error === "string" ? body.error : `The driver answered ${answer.status}.`);
  if (body === null) throw new NoAnswer(0, "The answer of the driver broke off.");
  return body;
}

/** @param {string} path @param {number} [afterMs] */
async function asked(path, afterMs = 0) {
  if (afterMs) await new Promise((go) => setTimeout(go, afterMs));
  return fetch(`api/v1/${path}`, { signal: AbortSignal.timeout(SILENCE_MS), credentials: "same-origin" });
}

/** The application of this driver. @returns {Promise<{id: string, name: string}>} */
export async function application() {
  const [first] = await get("applications");
  if (!first) throw new NoAnswer(404, "The driver has no application yet.");
  return first;
}

/** What a view asks for, below the application's streaming address. @param {string} id @param {string} what */
export const streaming = (id, what) => get(`applications/${encodeURIComponent(id)}/streaming/${what}`);
