// What the page and the server say to each other. Knows no element of the page; keeps the API key, in memory alone.

const PATIENCE_MS = 15000;

/** The server refused, in its own words. */
export class Refused extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered with status ${status}`);
    this.status = status;
    this.code = error?.code ?? null;
  }
}

/** There was no answer. */
export class Unreachable extends Error {
  constructor() {
    super("the server cannot be reached");
  }
}

export class Wire {
  #key = "";

  /** Use this API key from now on; "" for none. */
  set key(key) {
    this.#key = key.trim();
  }

  get hasKey() {
    return this.#key !== "";
  }

  /** What GET `path` answers. Throws Refused or Unreachable. */
  async get(path) {
    const response = await this.#fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS) });
    try {
      return await response.json();
    } catch {
      throw new Unreachable();
    }
  }

  /** The chunks of a streamed chat, as they come. Throws Refused or Unreachable; AbortError once `signal` says so. */
  async *chat(body, signal) {
    const response = await this.#fetch("v1/chat/completions", {
      method: "POST",
      body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
      signal,
    });
    for await (const data of events(response.body)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Refused(response.status, chunk.error);
      yield chunk;
    }
    throw new Unreachable(); // a stream that ended without saying so was cut
  }

  async #fetch(path, options) {
    const headers = { "content-type": "application/json" };
    if (this.#key) headers.authorization = `Bearer ${this.#key}`;
    let response;
    try {
      response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit", redirect: "error" });
    } catch (error) {
      throw error.name === "AbortError" ? error : new Unreachable();
    }
    if (response.ok) return response;
    const told = await response.json().catch(() => null);
    throw new Refused(response.status, told?.error);
  }
}

/** The data of each server-sent event. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch (error) {
        throw error.name === "AbortError" ? error : new Unreachable();
      }
      if (part.done) return;
      const lines = (rest + part.value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data: ")) yield line.slice(6);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
