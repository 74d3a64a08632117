// The chat box: one conversation, streamed, stopped, kept in memory alone. Whatever a model says is text.

import { byId, duration, make, setText, several } from "./dom.js";

const ANNOUNCED = 1000; // characters of an answer that are read out once it is whole

export class Chat {
  #wire;
  #conversation = [];
  #stopping = null;
  #log = byId("messages");
  #question = byId("question");

  /** begun, ended: called with the id of the answer; explain: with the one that somebody wants explained. */
  constructor(wire, { begun, ended, explain }) {
    this.#wire = wire;
    this.begun = begun;
    this.ended = ended;
    this.explain = explain;
    byId("chat-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.#question.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
    byId("stop").addEventListener("click", () => this.#stopping?.abort());
    byId("new-chat").addEventListener("click", () => this.#restart());
  }

  get #busy() {
    return this.#stopping !== null;
  }

  #restart() {
    this.#stopping?.abort();
    this.#conversation = [];
    this.#log.replaceChildren(byId("chat-hint") ?? make("p", { id: "chat-hint", className: "quiet" }, "Ask the model something."));
    this.#question.focus();
  }

  async #send() {
    const asked = this.#question.value.trim();
    if (!asked || this.#busy) return;
    this.#question.value = "";
    byId("chat-hint")?.remove();
    const conversation = this.#conversation;
    conversation.push({ role: "user", content: asked });
    this.#append(make("div", { className: "asked" }, asked));
    const answer = { bubble: make("div", { className: "answered making" }), text: "", id: null, usage: null };
    this.#append(answer.bubble);
    this.#setBusy(new AbortController());
    const began = performance.now();
    try {
      await this.#receive(answer, this.#body(conversation), this.#stopping.signal);
      this.#finish(answer, conversation, this.#bill(answer, began));
      setText(byId("chat-status"), `Answer: ${answer.text.slice(0, ANNOUNCED)}`);
    } catch (error) {
      this.#fail(error, answer, conversation, asked);
    } finally {
      answer.bubble.classList.remove("making");
      this.#setBusy(null);
      if (answer.id) this.ended(answer.id);
    }
  }

  #body(messages) {
    const body = { messages };
    const [tokens, temperature] = [byId("max-tokens").valueAsNumber, byId("temperature").valueAsNumber];
    if (!Number.isNaN(tokens)) body.max_completion_tokens = tokens;
    if (!Number.isNaN(temperature)) body.temperature = temperature;
    return body;
  }

  async #receive(answer, body, signal) {
    setText(byId("chat-status"), "The model is answering");
    for await (const chunk of this.#wire.chat(body, signal)) {
      if (answer.id === null) {
        answer.id = chunk.id;
        this.begun(chunk.id);
      }
      answer.usage = chunk.usage ?? answer.usage;
      const { content, reasoning_content: thought } = chunk.choices[0]?.delta ?? {};
      if (thought) this.#think(answer, thought);
      if (content) this.#extend(answer, content);
    }
  }

  #extend(answer, text) {
    answer.text += text;
    this.#keepingPlace(() => answer.bubble.append(text));
  }

  /** What the model thinks before it answers: shown, and not part of the conversation. */
  #think(answer, thought) {
    this.#keepingPlace(() => {
      if (!answer.thoughts) {
        answer.thoughts = make("p", { className: "thoughts" });
        answer.bubble.before(make("details", { open: true }, make("summary", {}, "Thinking"), answer.thoughts));
      }
      answer.thoughts.append(thought);
    });
  }

  #finish(answer, conversation, told) {
    conversation.push({ role: "assistant", content: answer.text });
    const after = make("p", { className: "after" }, `${told} `);
    if (answer.id) {
      const explain = make("button", { type: "button", className: "plain" }, "Why?");
      explain.setAttribute("aria-label", "Explain how this answer was served");
      const { id } = answer;
      explain.addEventListener("click", () => this.explain(id));
      after.append(explain);
    }
    this.#append(after);
  }

  #bill({ usage }, began) {
    const took = duration((performance.now() - began) / 1000);
    if (!usage) return took;
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    return `${several(usage.completion_tokens, "token")} in ${took}; ${cached} of the ${usage.prompt_tokens} before were cached.`;
  }

  #fail(error, answer, conversation, asked) {
    const stopped = error.name === "AbortError";
    if (answer.text) this.#finish(answer, conversation, stopped ? "Stopped." : "Cut off.");
    else {
      answer.bubble.remove();
      conversation.pop();
      if (!this.#question.value) this.#question.value = asked;
    }
    setText(byId("chat-status"), stopped ? "Stopped" : "");
    if (!stopped) this.#append(make("div", { className: "failed", role: "alert" }, sentence(error)));
  }

  #setBusy(stopping) {
    this.#stopping = stopping;
    const had = document.activeElement;
    byId("stop").hidden = stopping === null;
    byId("send").hidden = stopping !== null;
    if (had === byId("send") || had === byId("stop")) (stopping ? byId("stop") : this.#question).focus();
  }

  #append(element) {
    this.#keepingPlace(() => this.#log.append(element));
  }

  /** Stay at the end where the reader is there. */
  #keepingPlace(change) {
    const log = this.#log;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    change();
    if (atEnd) log.scrollTop = log.scrollHeight;
  }
}

/** What went wrong, as a sentence. */
export function sentence(error) {
  const text = error.message || String(error);
  return `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}
