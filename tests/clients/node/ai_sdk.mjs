// The Vercel AI SDK, with the provider for OpenAI-compatible servers.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, jsonSchema, streamText } from "ai";

import { instructions, lookUp, read, tell, tool } from "./dialogue.mjs";

const task = read();
const provider = createOpenAICompatible({
  name: "unabridged",
  baseURL: task.base_url,
  apiKey: task.api_key,
  headers: task.headers,
  includeUsage: true,
});
const tools = {
  [tool.name]: { description: tool.description, inputSchema: jsonSchema(tool.parameters), execute: lookUp },
};
const messages = [];
for (const { text, stream } of task.turns) {
  messages.push({ role: "user", content: text });
  const request = { model: provider(task.model), instructions, messages, tools, stopWhen: isStepCount(5) };
  const result = stream ? streamText(request) : await generateText(request);
  tell(await result.text);
  messages.push(...(await result.responseMessages));
}
