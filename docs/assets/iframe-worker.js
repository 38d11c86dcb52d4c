// A browser starts no worker for a page from the disk. There the search of the theme runs in a hidden frame, with the two calls of a worker
// that it uses. The theme asks for the name IFrameWorker.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    #waiting = [];
    #inside = null;

    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script src="${new URL(url, location)}"></script>`;
      frame.addEventListener("load", () => this.#loaded(frame.contentWindow), { once: true });
      document.body.append(frame);
    }

    // What the script posts comes to this page; what was posted before it was there goes to it now.
    #loaded(inside) {
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.#inside = inside;
      this.#waiting.forEach((data) => this.postMessage(data));
    }

    postMessage(data) {
      if (this.#inside === null) this.#waiting.push(data);
      else this.#inside.dispatchEvent(new this.#inside.MessageEvent("message", { data }));
    }
  };
  window.Worker = window.IFrameWorker;
}
