// Vercel's AI SDK with its provider for servers like OpenAI's.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import * as ai from "ai";
import { z } from "zod";

const options = { name: "orlop", baseURL: `${process.argv[2]}/v1`, supportsStructuredOutputs: true };
const model = createOpenAICompatible(options)("any");
const prompt = "What will the weather be in Kiel in the next 3 days?";
const trip = z.object({ city: z.string().max(20), days: z.number().int().min(1).max(9) });

const checks = {
  async stream() {
    const asked = { model, prompt, maxOutputTokens: 40, temperature: 0 };
    let text = "";
    for await (const piece of ai.streamText(asked).textStream) text += piece;
    assert.equal(text, (await ai.generateText(asked)).text);
  },
  async tools() {
    const tools = { forecast: ai.tool({ description: "The weather.", inputSchema: trip }) };
    const stream = ai.streamText({ model, prompt, tools, toolChoice: { type: "tool", toolName: "forecast" }, maxOutputTokens: 200 });
    let pieces = 0;
    for await (const part of stream.fullStream) {
      if (part.type === "tool-input-delta") pieces++;
      assert.notEqual(part.type, "error", String(part.error));
    }
    assert(pieces > 1, `${pieces} pieces`);
    trip.parse((await stream.toolCalls)[0].input);
  },
  async schema() {
    const asked = { model, prompt, output: ai.Output.object({ schema: trip }), maxOutputTokens: 200 };
    const answer = await ai.generateText(asked);
    trip.parse(answer.output ?? answer.experimental_output);
  },
  async cancel() {
    const controller = new AbortController();
    const stream = ai.streamText({ model, prompt, maxOutputTokens: 4000, abortSignal: controller.signal });
    let count = 0;
    for await (const _ of stream.textStream) {
      if (++count === 3) controller.abort();
    }
    assert(count < 4000);
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log(`  ${name}`);
}
const { version } = JSON.parse(readFileSync(new URL("node_modules/ai/package.json", import.meta.url)));
console.log(`  ai ${version}`);
