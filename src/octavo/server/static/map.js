// The block map: one square a block, painted on a canvas, walked through with pointer or keys. Fetches nothing.

import { byId, make, setText, several, short } from "./dom.js";
import { STATES } from "./pool.js";

const HEIGHT = 400; // what the map may take before it is scrolled, in CSS pixels
const [LEAST, MOST] = [4, 22]; // sides of a square with its gap
const GOLDEN_ANGLE = 137.508; // hues that follow one another are far apart
const QUIET_MS = 180; // that the keys must rest before a block is announced
const AGES = [
  { most: 0, name: "users changed under 1 s ago" },
  { most: 3, name: "under 8 s" },
  { most: 6, name: "about 1 min" },
  { most: 9, name: "under 9 min" },
  { most: 12, name: "about 1 h" },
  { most: Infinity, name: "longer ago" },
];
const SHARERS = [1, 2, 4, 8, 16, Infinity];

export class BlockMap {
  #canvas = byId("map");
  #legend = byId("legend");
  #cursor = byId("cursor");
  #pool = null;
  #colouring = "owner";
  #mine = new Set();
  #chosen = null;
  #hues = new Map();
  #place = 0;
  #columns = 1;
  #side = MOST;
  #announcing = 0;

  /** explain: called with a block that was chosen. */
  constructor(explain) {
    this.explain = explain;
    this.#canvas.addEventListener("keydown", (event) => this.#onKey(event));
    this.#canvas.addEventListener("click", (event) => this.#onClick(event));
    this.#canvas.addEventListener("pointermove", (event) => {
      const block = this.#blockAt(event);
      this.#canvas.title = block === null ? "" : this.#pool.label(block);
    });
    for (const kind of ["focus", "blur"]) this.#canvas.addEventListener(kind, () => this.#paint());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#repaint());
    new ResizeObserver(() => this.#paint()).observe(byId("map-frame"));
    byId("colouring").addEventListener("change", (event) => {
      this.#colouring = event.target.value;
      this.#repaint();
    });
  }

  /** Show this pool. mine: ids of the chat's own requests; chosen: the id of the request that is explained. */
  show(pool, mine, chosen) {
    this.#pool = pool;
    this.#mine = mine;
    this.#chosen = chosen;
    this.#place = Math.min(this.#place, pool.length - 1);
    const ids = new Set(pool.requests.map((request) => request.id));
    for (const id of this.#hues.keys()) if (!ids.has(id)) this.#hues.delete(id);
    setText(byId("summary"), pool.summary());
    this.#repaint();
  }

  /** The colour of a request's blocks. */
  colourOf(id) {
    return this.#mine.has(id) ? this.#named("--block-mine") : this.#hue(id);
  }

  #repaint() {
    if (!this.#pool) return;
    this.#paint();
    this.#paintLegend();
  }

  // -- painting --

  #named(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  #hue(id) {
    if (!this.#hues.has(id)) {
      const taken = new Set(this.#hues.values());
      let number = 0;
      while (taken.has(number)) number++;
      this.#hues.set(id, number);
    }
    const hue = (195 + this.#hues.get(id) * GOLDEN_ANGLE) % 360;
    return `hsl(${hue.toFixed(0)} ${this.#named("--owner-chroma")} ${this.#named("--owner-light")})`;
  }

  #measure(width) {
    const length = this.#pool.length;
    let side = MOST;
    while (side > LEAST && Math.ceil(length / Math.floor(width / side)) * side > HEIGHT) side--;
    this.#side = side;
    this.#columns = Math.max(1, Math.floor(width / side));
    return Math.ceil(length / this.#columns) * side;
  }

  #paint() {
    const pool = this.#pool;
    const width = byId("map-frame").clientWidth;
    if (!pool || !width) return;
    const height = this.#measure(width);
    const scale = pool.length > 100_000 ? 1 : Math.min(devicePixelRatio || 1, 2);
    this.#canvas.width = Math.round(width * scale);
    this.#canvas.height = Math.round(height * scale);
    this.#canvas.style.height = `${height}px`;
    const pen = this.#canvas.getContext("2d");
    pen.scale(scale, scale);
    const [side, columns] = [this.#side, this.#columns];
    const looks = this.#looks();
    for (let block = 0; block < pool.length; block++) {
      const [x, y] = [(block % columns) * side, Math.floor(block / columns) * side];
      drawBlock(pen, x, y, side, looks.of(block), looks.mark);
    }
    if (document.activeElement === this.#canvas) this.#ring(pen, this.#place, looks.ring, 2);
  }

  #ring(pen, block, colour, thickness) {
    const [x, y] = [(block % this.#columns) * this.#side, Math.floor(block / this.#columns) * this.#side];
    pen.strokeStyle = colour;
    pen.lineWidth = thickness;
    pen.strokeRect(x - 0.5, y - 0.5, this.#side, this.#side);
  }

  /** How blocks look now: a function from block to colour and form. */
  #looks() {
    const pool = this.#pool;
    const mark = this.#named("--block-mark");
    const colours = Object.fromEntries(["free", "cached", "other", "pinned"].map((name) => [name, this.#named(`--block-${name}`)]));
    const ramp = AGES.map((_, number) => this.#named(`--ramp-${number}`));
    const owners = pool.requests.map((request) => this.colourOf(request.id));
    const outlined = pool.requests.map((request) => this.#mine.has(request.id) || request.id === this.#chosen);
    const ring = this.#named("--ring");
    const byState = (block) => [colours.free, colours.cached, colours.other, colours.other, colours.pinned][pool.states[block]];
    const tint = {
      owner: (block) => (pool.owners[block] >= 0 ? owners[pool.owners[block]] : byState(block)),
      age: (block) => ramp[AGES.findIndex(({ most }) => pool.ages[block] <= most)],
      sharing: (block) => (pool.tables[block] ? ramp[5 - SHARERS.findIndex((most) => pool.tables[block] <= most)] : byState(block)),
      tier: (block) => [colours.other, ramp[3], ramp[1], ramp[0]][tierRank(pool.tiersOf(block))],
    }[this.#colouring];
    const of = (block) => {
      const state = STATES[pool.states[block]];
      const owner = pool.owners[block];
      return {
        state,
        colour: state === "free" ? colours.free : tint(block),
        outline: owner >= 0 && outlined[owner] ? ring : null,
      };
    };
    return { of, mark, ring };
  }

  // -- legend --

  #paintLegend() {
    const entries = { owner: () => this.#ownerLegend(), age: () => this.#ageLegend(), sharing: () => this.#sharingLegend(), tier: () => this.#tierLegend() }[this.#colouring]();
    const free = { state: "free", colour: this.#named("--block-free"), name: "empty" };
    const told = JSON.stringify([...entries, free, this.#named("--card")]);
    if (this.#legend.dataset.told === told) return;
    this.#legend.dataset.told = told;
    const mark = this.#named("--block-mark");
    this.#legend.replaceChildren(
      ...[...entries, free].map(({ name, ...look }) => {
        const swatch = make("canvas", { width: 32, height: 32, "aria-hidden": "true" });
        const pen = swatch.getContext("2d");
        pen.scale(2, 2);
        drawBlock(pen, 0, 0, 16, look, mark);
        return make("li", {}, swatch, name);
      }),
    );
  }

  #ownerLegend() {
    const { requests } = this.#pool;
    const mine = requests.find((request) => this.#mine.has(request.id));
    const others = requests.filter((request) => !this.#mine.has(request.id) && request.state === "running");
    const look = (name, state, colour, outline = null) => ({ name, state, colour, outline });
    return [
      ...(mine ? [look("this chat", "used", this.#named("--block-mine"), this.#named("--ring"))] : []),
      ...others.slice(0, 3).map((request) => look(short(request.id), "used", this.colourOf(request.id))),
      ...(others.length > 3 ? [look(`${others.length - 3} more of yours`, "used", this.colourOf(others[3].id))] : []),
      look("used by others", "used", this.#named("--block-other")),
      look("shared", "shared", this.#named("--block-other")),
      look("pinned", "pinned", this.#named("--block-pinned")),
      look("cached", "cached", this.#named("--block-cached")),
    ];
  }

  #ageLegend() {
    return AGES.map(({ name }, number) => ({ name, state: "used", colour: this.#named(`--ramp-${number}`) }));
  }

  #sharingLegend() {
    const names = SHARERS.map((most, place) => {
      const least = place ? SHARERS[place - 1] + 1 : 1;
      return most === Infinity ? `${least} tables or more` : least === most ? `in ${several(most, "table")}` : `${least} to ${most}`;
    });
    const cached = { name: "cached", state: "cached", colour: this.#named("--block-cached") };
    return [...names.map((name, place) => ({ name, state: place ? "shared" : "used", colour: this.#named(`--ramp-${5 - place}`) })), cached];
  }

  #tierLegend() {
    const names = ["in the pool alone", "also in host memory", "also on disk", "in all three"];
    const colours = ["--block-other", "--ramp-3", "--ramp-1", "--ramp-0"];
    return names.map((name, place) => ({ name, state: "used", colour: this.#named(colours[place]) }));
  }

  // -- pointer and keys --

  #blockAt(event) {
    if (!this.#pool) return null;
    const box = this.#canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.#side);
    const block = Math.floor((event.clientY - box.top) / this.#side) * this.#columns + column;
    return column < this.#columns && block >= 0 && block < this.#pool.length ? block : null;
  }

  #onClick(event) {
    const block = this.#blockAt(event);
    if (block === null) return;
    this.#place = block;
    this.#paint();
    this.explain(block);
  }

  #onKey(event) {
    if (!this.#pool || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = {
      ArrowLeft: -1,
      ArrowRight: 1,
      ArrowUp: -this.#columns,
      ArrowDown: this.#columns,
      PageUp: -8 * this.#columns,
      PageDown: 8 * this.#columns,
      Home: -Infinity,
      End: Infinity,
    };
    if (event.key === "Enter" || event.key === " ") this.explain(this.#place);
    else if (event.key in moves) this.#move(moves[event.key]);
    else return;
    event.preventDefault();
  }

  #move(by) {
    this.#place = Math.max(0, Math.min(this.#pool.length - 1, this.#place + by));
    this.#paint();
    const frame = byId("map-frame");
    const top = Math.floor(this.#place / this.#columns) * this.#side;
    if (top < frame.scrollTop) frame.scrollTop = top;
    if (top + this.#side > frame.scrollTop + frame.clientHeight) frame.scrollTop = top + this.#side - frame.clientHeight;
    clearTimeout(this.#announcing);
    this.#announcing = setTimeout(() => setText(this.#cursor, this.#pool.label(this.#place)), QUIET_MS);
  }
}

/** 0: nowhere else, 1: host, 2: disk, 3: both. */
const tierRank = (names) => (names.includes("host") ? 1 : 0) + (names.includes("disk") ? 2 : 0);

/** One block. Its form tells its state as well: cached is small, shared has a mark within, pinned a bar above. */
function drawBlock(pen, x, y, side, { state, colour, outline }, mark) {
  const gap = side >= 12 ? 2 : 1;
  const size = side - gap;
  const inset = state === "cached" ? size * 0.2 : 0;
  pen.fillStyle = colour;
  pen.fillRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset);
  if (size >= 5 && state === "shared") {
    pen.fillStyle = mark;
    pen.fillRect(x + size * 0.33, y + size * 0.33, size * 0.34, size * 0.34);
  }
  if (size >= 5 && state === "pinned") {
    pen.fillStyle = mark;
    pen.fillRect(x + size * 0.2, y + size * 0.2, size * 0.6, Math.max(1, size * 0.18));
  }
  if (outline && size >= 6) {
    pen.strokeStyle = outline;
    pen.lineWidth = size >= 8 ? 1.5 : 1;
    pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
  }
}
