// OpenAI's client for Node.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "What will the weather be in Kiel in the next 3 days?" }];
const parameters = {
  type: "object",
  properties: { city: { type: "string", maxLength: 20 }, days: { type: "integer", minimum: 1, maximum: 9 } },
  required: ["city", "days"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "forecast", description: "The weather.", parameters } }];

function fits(text) {
  assert.deepEqual(Object.keys(JSON.parse(text)).sort(), ["city", "days"]);
}

const checks = {
  async stream() {
    const options = { model, messages, max_tokens: 40, temperature: 0 };
    const whole = await client.chat.completions.create(options);
    let text = "";
    for await (const chunk of await client.chat.completions.create({ ...options, stream: true })) {
      text += chunk.choices[0]?.delta?.content ?? "";
    }
    assert.equal(text, whole.choices[0].message.content);
    const response = await client.responses.create({ model, input: "Say hello.", max_output_tokens: 20 });
    assert.equal(typeof response.output_text, "string");
  },
  async tools() {
    const options = { model, messages, tools, tool_choice: "required", parallel_tool_calls: false, max_tokens: 200 };
    const stream = client.chat.completions.stream(options);
    let pieces = 0;
    stream.on("tool_calls.function.arguments.delta", () => pieces++);
    const { message, finish_reason: reason } = (await stream.finalChatCompletion()).choices[0];
    assert.equal(reason, "tool_calls");
    assert(pieces > 1, `${pieces} pieces`);
    fits(message.tool_calls[0].function.arguments);
    const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "rain" };
    await client.chat.completions.create({ model, messages: [...messages, message, result], tools, max_tokens: 30 });
  },
  async schema() {
    const format = { type: "json_schema", json_schema: { name: "trip", strict: true, schema: parameters } };
    const answer = await client.chat.completions.create({ model, messages, response_format: format, max_tokens: 200 });
    fits(answer.choices[0].message.content);
  },
  async cancel() {
    const stream = await client.chat.completions.create({ model, messages, stream: true, max_tokens: 4000 });
    let count = 0;
    for await (const _ of stream) {
      if (++count === 3) stream.controller.abort();
    }
    assert(count < 4000);
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log(`  ${name}`);
}
const { version } = JSON.parse(readFileSync(new URL("node_modules/openai/package.json", import.meta.url)));
console.log(`  openai ${version}`);
