// The live page: looks at the pool while it is itself looked at, and brings what it sees to map, charts and lists.

import { Charts } from "./charts.js";
import { Chat, sentence } from "./chat.js";
import { byId, count, duration, make, percent, setText, several, short } from "./dom.js";
import { BlockMap } from "./map.js";
import { Pool } from "./pool.js";
import { Refused, Unreachable, Wire } from "./wire.js";

const EVERY_MS = 1000;
const CHATTING_MS = 500;
const OFFERED = 4; // owners of one block that can be explained next
const OTHERS = /\b(chatcmpl|cmpl|resp)[-_][0-9a-f]+/g; // ids within an explanation
const BACKOFF_MS = { first: 1000, last: 30_000 };

class Page {
  #wire = new Wire();
  #charts = new Charts();
  #map = new BlockMap((block) => this.#explainBlock(block));
  #pool = null;
  #mine = new Set();
  #chosen = null;
  #timer = 0;
  #failures = 0;
  #looking = false;

  constructor() {
    new Chat(this.#wire, {
      begun: (id) => this.#chatBegan(id),
      ended: (id) => this.#mine.delete(id),
      explain: (id) => this.#explainRequest(id),
    });
    byId("key").value = ""; // browsers bring back what was typed
    byId("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#wire.key = byId("key").value;
      this.#failures = 0;
      this.#look();
    });
    document.addEventListener("visibilitychange", () => this.#look());
    window.addEventListener("online", () => this.#look());
    this.#look();
  }

  // -- looking --

  #later(ms, told = () => "") {
    clearTimeout(this.#timer);
    const at = Date.now() + ms;
    const tick = () => {
      const left = at - Date.now();
      setText(byId("retry"), left > 0 ? told(Math.ceil(left / 1000)) : "");
      if (left <= 0) this.#look();
      else this.#timer = setTimeout(tick, Math.min(left, 1000));
    };
    tick();
  }

  async #look() {
    if (document.hidden || this.#looking) return;
    clearTimeout(this.#timer);
    this.#looking = true;
    try {
      const told = await this.#wire.get("pool");
      this.#failures = 0;
      this.#status("live", "Live");
      this.#show(told);
      this.#later(Math.max(told.next_s * 1000, this.#mine.size ? CHATTING_MS : EVERY_MS));
    } catch (error) {
      this.#onFailure(error);
    } finally {
      this.#looking = false;
    }
  }

  #onFailure(error) {
    if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
    byId("key-form").classList.toggle("wanted", error.status === 401);
    if (error.status === 401) {
      this.#status("away", this.#wire.hasKey ? "The API key is not valid here" : "An API key is needed");
      setText(byId("retry"), "");
      return; // until there is another one
    }
    const wait = Math.min(BACKOFF_MS.first * 2 ** this.#failures++, BACKOFF_MS.last);
    this.#status("away", error.status === 503 ? "The server is not ready" : error instanceof Refused ? sentence(error) : "The server cannot be reached");
    this.#later(wait, (seconds) => `next try in ${seconds} s`);
  }

  #status(kind, text) {
    byId("status").className = `status ${kind}`;
    setText(byId("status-text"), text);
  }

  #chatBegan(id) {
    this.#mine.add(id);
    this.#look();
  }

  // -- showing --

  #show(told) {
    byId("key-form").classList.remove("wanted");
    const pool = (this.#pool = new Pool(told));
    setText(byId("model"), told.model);
    document.title = `${told.model} · octavo`;
    const speed = this.#charts.add(told.time, told.figures);
    this.#map.show(pool, this.#mine, this.#chosen);
    this.#showFigures(pool, speed);
    this.#showRequests(pool);
  }

  #showFigures({ figures, counts, length, below }, speed) {
    const used = counts.used + counts.shared;
    const rows = [
      ["Running", count(figures.running), figures.running === 1 ? "sequence" : "sequences"],
      ["Waiting", count(figures.waiting), figures.waiting ? `about ${duration(figures.predicted_wait_s)}` : "nobody"],
      ["Tokens / s", speed === null ? "–" : count(speed), "generated"],
      ["Blocks in use", percent(used / length), `${count(used)} of ${count(length)}`],
      ["Effective use", percent(figures.utilisation), "of their room"],
      ["Cached", count(counts.cached + counts.pinned), counts.pinned ? `${count(counts.pinned)} pinned` : "blocks"],
      ["Sharing", `${figures.sharing_ratio.toFixed(2)}×`, "tables a block"],
      ...below.map((tier) => [tier.name === "host" ? "Host memory" : "Disk", percent(tier.used / tier.capacity), several(tier.used, "block")]),
    ];
    const list = byId("figures");
    while (list.children.length > rows.length) list.lastChild.remove();
    while (list.children.length < rows.length)
      list.append(make("div", {}, make("dt"), make("dd", {}, make("span"), " ", make("small"))));
    rows.forEach(([name, value, more], place) => {
      const [term, { firstChild, lastChild }] = list.children[place].children;
      setText(term, name);
      setText(firstChild, value);
      setText(lastChild, more);
    });
  }

  #showRequests({ requests, figures }) {
    const list = byId("requests");
    const rows = new Map([...list.children].map((row) => [row.dataset.request, row]));
    const seen = new Map();
    requests.forEach((request, place) => {
      const name = `${request.id}/${seen.get(request.id) ?? 0}`;
      seen.set(request.id, (seen.get(request.id) ?? 0) + 1);
      const row = rows.get(name) ?? this.#newRow(name, request.id);
      rows.delete(name);
      this.#fillRow(row, request);
      if (list.children[place] !== row) list.insertBefore(row, list.children[place] ?? null);
    });
    for (const row of rows.values()) row.remove();
    byId("no-requests").hidden = requests.length > 0;
    setText(byId("requests-count"), `in all: ${count(figures.running)} running, ${count(figures.waiting)} waiting`);
  }

  #newRow(name, id) {
    const swatch = make("canvas", { className: "swatch", width: 24, height: 24, "aria-hidden": "true" });
    const parts = [swatch, make("span", { className: "name" }), make("span", { className: "state" }), make("progress", { max: 1 }), make("span", { className: "told" })];
    const button = make("button", { type: "button" }, ...parts);
    button.addEventListener("click", () => this.#explainRequest(id));
    const row = make("li", {}, button);
    row.dataset.request = name;
    return row;
  }

  #fillRow(row, request) {
    const [button] = row.children;
    const [swatch, name, state, progress, told] = button.children;
    const pen = swatch.getContext("2d");
    pen.fillStyle = this.#map.colourOf(request.id);
    pen.fillRect(0, 0, 24, 24);
    button.setAttribute("aria-pressed", String(request.id === this.#chosen));
    name.title = request.id ?? "";
    setText(name, `${(request.id ?? "").split(/[-_]/)[0]} ${short(request.id)}`.trim());
    setText(state, this.#mine.has(request.id) ? `${request.state}, this chat` : request.state);
    progress.value = request.max_tokens ? request.made_tokens / request.max_tokens : 0;
    progress.setAttribute("aria-label", "Tokens made, of the most there may be");
    const cached = request.cached_tokens ? ` (${count(request.cached_tokens)} cached)` : "";
    setText(told, `prompt ${count(request.prompt_tokens)}${cached} · ${count(request.made_tokens)} of ${several(request.max_tokens, "token")} · ${duration(request.age_s)}`);
  }

  // -- explaining --

  #tell(title, sentences) {
    byId("explanation").replaceChildren(make("h3", {}, title), ...sentences);
  }

  #explainBlock(block) {
    if (!this.#pool || block >= this.#pool.length) return;
    this.#choose(null);
    const ids = new Set(this.#pool.ownersOf(block).map(({ request }) => request.id).filter(Boolean));
    const buttons = [...ids].slice(0, OFFERED).map((id) => {
      const button = make("button", { type: "button", title: id }, `Explain ${short(id)}`);
      button.addEventListener("click", () => this.#explainRequest(id));
      return button;
    });
    this.#tell(`Block ${count(block)}`, [...this.#pool.explain(block).map((text) => make("p", {}, text)), ...buttons]);
  }

  async #explainRequest(id) {
    if (id === null) return;
    this.#choose(id);
    try {
      const told = await this.#wire.get(`requests/${encodeURIComponent(id)}/explain`);
      const prompts = told.prompts.map(({ text }) => {
        const [first, ...rest] = text.split("\n");
        return [make("p", {}, sentence({ message: first.replace(`${id}: `, "") })), make("ul", {}, ...rest.map((line) => make("li", {}, sentence({ message: line.replaceAll(id, "itself").replace(OTHERS, short) }))))];
      });
      this.#tell(id, prompts.flat());
    } catch (error) {
      this.#tell(id, [make("p", {}, sentence(error))]);
    }
  }

  #choose(id) {
    this.#chosen = id;
    if (!this.#pool) return;
    this.#map.show(this.#pool, this.#mine, id);
    this.#showRequests(this.#pool);
  }
}

new Page();
