// Small tools for building the page. Text only ever becomes text nodes: nothing here can be made to parse HTML.

/** The element of this id, which index.html has. */
export const byId = (id) => document.getElementById(id);

/** A new element: a tag, its properties, what is in it (elements, or texts). */
export function make(tag, properties = {}, ...content) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...content);
  return element;
}

/** Change a text only where it differs, so that nothing is announced or laid out for nothing. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const whole = new Intl.NumberFormat("en");

/** 10240 -> "10,240" */
export const count = (number) => whole.format(Math.round(number));

/** 1, "block" -> "1 block"; 2, "block" -> "2 blocks" */
export const several = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** A share of 1, as percent: "0.4%", "37%" */
export const percent = (share) => `${(100 * share).toFixed(share && share < 0.1 ? 1 : 0)}%`;

/** The end of a request's id, which tells it apart well enough. */
export const short = (id) => (id ? `…${id.slice(-6)}` : "a request");

/** Seconds, in words that are short. */
export function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}
