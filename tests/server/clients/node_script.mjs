// What programs do with the official client for Node. Arguments: the base URL, the API key.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [baseURL, apiKey, ...features] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const messages = [{ role: "user", content: "hi" }];
const CHAT = "Helloé!";
const parameters = { type: "object", properties: { colour: { enum: ["red", "blue"] } }, required: ["colour"] };
const paint = { type: "function", function: { name: "paint", description: "Paints.", parameters } };

const models = [];
for await (const model of client.models.list()) models.push(model.id);
assert.deepEqual(models, ["toy"]);

const completion = await client.completions.create({ model: "toy", prompt: "a", max_tokens: 4, temperature: 0 });
assert.equal(completion.choices[0].text, "bcdd");

const chat = await client.chat.completions.create({ model: "toy", messages, temperature: 0 });
assert.equal(chat.choices[0].message.content, CHAT);

const stream_options = { include_usage: true };
const stream = await client.chat.completions.create({ model: "toy", messages, temperature: 0, stream: true, stream_options });
let text = "", usage = null;
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta.content ?? "";
  usage ??= chunk.usage;
}
assert.equal(text, CHAT);
assert.equal(usage.total_tokens, chat.usage.total_tokens);

const runner = client.chat.completions.stream({ model: "toy", messages, temperature: 0 });
assert.equal(await runner.finalContent(), CHAT);

const called = await client.chat.completions.create({
  model: "toy", messages, temperature: 0, tools: [paint], tool_choice: "required", parallel_tool_calls: false,
});
const [call] = called.choices[0].message.tool_calls;
assert.equal(call.function.name, "paint");
assert.ok(["red", "blue"].includes(JSON.parse(call.function.arguments).colour));
const result = { role: "tool", tool_call_id: call.id, content: "done" };
const after = await client.chat.completions.create({
  model: "toy", messages: [...messages, called.choices[0].message, result], temperature: 0,
});
assert.equal(after.choices[0].message.content, CHAT);

const schema = { type: "object", properties: { on: { type: "boolean" } }, required: ["on"], additionalProperties: false };
const response_format = { type: "json_schema", json_schema: { name: "flag", schema, strict: true } };
const form = await client.chat.completions.create({ model: "toy", messages, response_format, max_tokens: 50 });
assert.equal(typeof JSON.parse(form.choices[0].message.content).on, "boolean");

const response = await client.responses.create({ model: "toy", input: "hi", temperature: 0 });
assert.equal(response.output_text, CHAT);
let told = "";
for await (const event of await client.responses.create({ model: "toy", input: "hi", temperature: 0, stream: true })) {
  if (event.type === "response.output_text.delta") told += event.delta;
}
assert.equal(told, CHAT);

await assert.rejects(
  client.chat.completions.create({ model: "absent", messages }),
  (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found" && error.param === "model",
);
await assert.rejects(
  client.chat.completions.create({ model: "toy", messages, temperature: 3 }),
  (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature" && Boolean(error.requestID),
);
await assert.rejects(
  new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 }).models.list(),
  (error) => error instanceof OpenAI.AuthenticationError && error.code === "invalid_api_key",
);

const long = await client.completions.create({
  model: "toy", prompt: "a", max_tokens: 1500, temperature: 0, ignore_eos: true, stream: true,
});
for await (const _ of long) break; // leaving the loop aborts the request

if (features.includes("embeddings")) {
  const { data } = await client.embeddings.create({ model: "toy", input: ["a", "hi"] });
  assert.equal(data.length, 2);
  assert.equal(typeof data[0].embedding[0], "number");
}
