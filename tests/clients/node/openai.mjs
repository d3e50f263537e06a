// npm's openai: `runTools` calls the tool and keeps the history.

import OpenAI from "openai";

import { lookUp, read, tell, tool } from "./dialogue.mjs";

const task = read();
const client = new OpenAI({ baseURL: task.base_url, apiKey: task.api_key, defaultHeaders: task.headers });
const tools = [{ type: "function", function: { ...tool, function: lookUp, parse: JSON.parse } }];
let messages = [];
for (const { text, stream } of task.turns) {
  messages.push({ role: "user", content: text });
  const runner = client.chat.completions.runTools({ model: task.model, messages, tools, stream });
  tell(await runner.finalContent());
  messages = [...runner.messages];
}
