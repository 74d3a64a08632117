// Tokens a second and the use of the pool over the last minutes. Remembers only what it was shown.

import { byId, make, setText } from "./dom.js";

const [SHORTEST_S, LONGEST_S] = [60, 300]; // what a chart spans: as long as there is something to see
const GAP_S = 12; // without a picture for so long, a line is broken: nobody looked
const [WIDTH, HEIGHT] = [300, 100];
const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

class Chart {
  constructor(figure, title, names) {
    this.value = make("span");
    this.since = make("span");
    this.top = make("span");
    this.lines = names.map((_, place) => svg("path", { class: place ? "line second" : "line" }));
    this.area = svg("path", { class: "area" });
    this.picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    for (const y of [0, 50, 100]) this.picture.append(svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
    this.picture.append(this.area, ...this.lines);
    const keys = names.length > 1 ? make("span", { className: "keys" }, ...names.map((name) => make("span", {}, name))) : "";
    figure.append(
      make("figcaption", {}, make("strong", {}, title), keys, this.value),
      this.picture,
      make("div", { className: "axis", "aria-hidden": "true" }, this.since, this.top, make("span", {}, "now")),
    );
  }

  /** series: for each line its points, [seconds ago, value from 0 to most]; null breaks it. span: seconds. */
  draw(series, most, span, label) {
    setText(this.since, span < LONGEST_S ? `${Math.round(span)} s ago` : "5 min ago");
    const at = ([ago, value]) => `${(WIDTH * (1 - ago / span)).toFixed(1)} ${(HEIGHT * (1 - value / most)).toFixed(1)}`;
    series.forEach((points, place) => {
      let pen = "M";
      const path = points.map((point) => {
        if (point === null) {
          pen = "M";
          return "";
        }
        const part = pen + at(point);
        pen = "L";
        return part;
      });
      this.lines[place].setAttribute("d", path.join(""));
    });
    const parts = split(series[0]).map((part) => `M${at([part[0][0], 0])}L${part.map(at).join("L")}L${at([part.at(-1)[0], 0])}Z`);
    this.area.setAttribute("d", parts.join(""));
    this.picture.setAttribute("aria-label", label);
  }
}

/** Unbroken parts. */
function split(points) {
  const parts = [[]];
  for (const point of points) {
    if (point === null) parts.push([]);
    else parts.at(-1).push(point);
  }
  return parts.filter((part) => part.length);
}

/** The next of 1, 2, 5, 10, 20, ... */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((digit) => digit * power).find((each) => each >= value);
}

export class Charts {
  #seen = [];
  #last = null;
  #speed = new Chart(byId("speed-chart"), "Tokens per second", ["generated"]);
  #use = new Chart(byId("use-chart"), "Use of memory", ["blocks in use", "effective use"]);

  /** One more picture; the tokens a second since the one before, or null. */
  add(time, figures) {
    const last = this.#last;
    this.#last = { time, tokens: figures.generated_tokens };
    if (last && figures.generated_tokens < last.tokens) this.#seen = []; // another engine
    if (last && time === last.time) return this.#seen.at(-1)?.speed ?? null;
    const known = last && time - last.time < GAP_S && figures.generated_tokens >= last.tokens;
    const speed = known ? (figures.generated_tokens - last.tokens) / (time - last.time) : null;
    this.#seen.push({ time, speed, used: 100 * figures.block_utilisation, filled: 100 * figures.utilisation });
    this.#seen = this.#seen.filter((each) => each.time > time - LONGEST_S);
    this.#draw(time);
    return speed;
  }

  #draw(now) {
    const line = (value) => {
      const points = [];
      let before = null;
      for (const each of this.#seen) {
        if (before !== null && each.time - before > GAP_S) points.push(null);
        before = each.time;
        points.push(value(each) === null ? null : [now - each.time, value(each)]);
      }
      return points;
    };
    const last = this.#seen.at(-1);
    const span = Math.min(LONGEST_S, Math.max(SHORTEST_S, now - this.#seen[0].time));
    const peak = Math.max(...this.#seen.map((each) => each.speed ?? 0));
    const most = ceiling(peak);
    this.#speed.draw([line((each) => each.speed)], most, span, `Tokens per second: now ${(last.speed ?? 0).toFixed(0)}, at most ${peak.toFixed(0)} in the last minutes`);
    setText(this.#speed.value, `${(last.speed ?? 0).toFixed(0)} now`);
    setText(this.#speed.top, `top line: ${most}`);
    this.#use.draw([line((each) => each.used), line((each) => each.filled)], 100, span, `Use of memory: ${last.used.toFixed(0)} percent of the blocks are in use, and ${last.filled.toFixed(0)} percent of their room is filled`);
    setText(this.#use.value, `${last.used.toFixed(0)}% · ${last.filled.toFixed(0)}%`);
    setText(this.#use.top, "top line: 100%");
  }
}
