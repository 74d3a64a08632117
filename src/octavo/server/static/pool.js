// One picture of the pool, unpacked, and what can be said of a block. Draws nothing.

import { several } from "./dom.js";

export const STATES = ["free", "cached", "used", "shared", "pinned"];

/** value, count, value, count, ... -> a value for each block. */
function spread(runs, length, code) {
  const column = new Int32Array(length);
  let block = 0;
  for (let place = 0; place < runs.length; place += 2) {
    column.fill(code(runs[place]), block, block + runs[place + 1]);
    block += runs[place + 1];
  }
  return column;
}

export class Pool {
  /** told: what GET /pool answered. */
  constructor(told) {
    const { blocks, num_blocks: length } = told;
    this.length = length;
    this.blockSize = told.block_size;
    this.counts = told.counts;
    this.figures = told.figures;
    this.below = told.tiers;
    this.requests = told.requests;
    this.states = spread(blocks.states, length, (state) => STATES.indexOf(state));
    this.tables = spread(blocks.tables, length, (tables) => tables);
    this.ages = spread(blocks.ages, length, (age) => age);
    this.tierNames = [...new Set(blocks.tiers.filter((_, place) => place % 2 === 0))];
    this.tiers = spread(blocks.tiers, length, (names) => this.tierNames.indexOf(names));
    this.kept = new Uint8Array(length);
    for (let place = 0; place < blocks.kept.length; place += 2)
      this.kept.fill(1, blocks.kept[place], blocks.kept[place] + blocks.kept[place + 1]);
    this.owners = new Int32Array(length).fill(-1); // the first of the caller's requests that has it
    this.requests.forEach((request, number) => {
      for (const { first, count } of rangesOf(request))
        for (let block = first; block < first + count; block++) if (this.owners[block] < 0) this.owners[block] = number;
    });
  }

  /** The names of the memories below the pool that have the block's content too. */
  tiersOf(block) {
    return (this.tierNames[this.tiers[block]] ?? "").split(" ").filter(Boolean);
  }

  /** Whose block it is, and which tokens of theirs it has room for. */
  ownersOf(block) {
    const found = [];
    for (const request of this.requests)
      for (const { answer, group, groups, first, count, place } of rangesOf(request)) {
        if (block < first || block >= first + count) continue;
        const from = (place + block - first) * this.blockSize;
        found.push({ request, answer, group, groups, from, to: Math.min(from + this.blockSize, answer.tokens) });
      }
    return found;
  }

  /** A line for those who cannot see the map, or do not want to count. */
  summary() {
    const parts = STATES.filter((state) => this.counts[state]).map((state) => `${several(this.counts[state], "block")} ${state}`);
    return `${several(this.length, "block")} of ${several(this.blockSize, "token")} each: ${parts.join(", ")}.`;
  }

  /** Short: what a block is. */
  label(block) {
    return `Block ${block}: ${STATES[this.states[block]]}${this.kept[block] && this.states[block] !== 4 ? ", pinned" : ""}`;
  }

  /** What can be said of a block, as sentences. */
  explain(block) {
    const state = STATES[this.states[block]];
    const ago = agoOf(this.ages[block]);
    const told = [];
    if (state === "free") told.push("Empty: it holds nothing that could be found again, and is among the next to be given out.");
    if (state === "cached")
      told.push(`Cached: nobody has used it for ${ago}. A prompt that begins alike will find it here, until its room is needed.`);
    if (state === "pinned") told.push("Pinned: nobody uses it now, and it stays cached all the same, until its pin ends.");
    if (state === "used" || state === "shared") told.push(...this.#users(block, ago));
    if (this.kept[block] && state !== "pinned") told.push("It is pinned: it stays cached when nobody uses it any more.");
    const below = this.tiersOf(block);
    if (below.length) told.push(`Its content is also ${below.map((name) => PLACES[name] ?? `in ${name}`).join(" and ")}.`);
    return told;
  }

  #users(block, ago) {
    const tables = this.tables[block];
    if (!tables) return ["In use by the step that runs, as the source or the target of a copy."];
    const owners = this.ownersOf(block);
    const told = [];
    if (tables > 1) told.push(`Shared: ${tables} block tables have it, and whoever writes to it first gets a copy.`);
    else told.push(`In use by one block table, for ${ago}.`);
    for (const { request, answer, group, groups, from, to } of owners) {
      const tokens = to > from ? `tokens ${from} to ${to - 1}` : `room for tokens from ${from}`;
      const layers = groups > 1 ? `, layer group ${group + 1} of ${groups}` : "";
      told.push(`${request.id ?? "A request"}, answer ${answer.index}${layers}: ${tokens}.`);
    }
    const others = tables - owners.length;
    if (others > 0) told.push(`${several(others, "table")} of others, or of requests that have just come or gone.`);
    return told;
  }
}

const PLACES = { host: "in host memory", disk: "on disk" };

/** All ranges of blocks in a request's tables. place: of the first one in its table. */
function* rangesOf(request) {
  for (const answer of request.answers)
    for (const [group, table] of answer.tables.entries()) {
      let place = 0;
      for (let at = 0; at < table.length; at += 2) {
        const [first, count] = [table[at], table[at + 1]];
        if (first >= 0) yield { answer, group, groups: answer.tables.length, first, count, place };
        place += count;
      }
    }
}

/** An age as /pool has it, in words. */
function agoOf(bits) {
  if (bits < 0) return "ever";
  if (bits === 0) return "less than a second";
  const seconds = 2 ** (bits - 1);
  if (seconds < 64) return `about ${several(seconds, "second")}`;
  if (seconds < 4096) return `about ${several(Math.round(seconds / 60), "minute")}`;
  return `about ${several(Math.round(seconds / 3600), "hour")}`;
}
