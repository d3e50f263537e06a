// LangChain's own agent, which puts its name on each answer that it sends back.

import { ChatOpenAI } from "@langchain/openai";
import { createAgent, tool as asTool } from "langchain";

import { instructions, lookUp, read, tell, tool } from "./dialogue.mjs";

const task = read();
const agent = createAgent({
  model: new ChatOpenAI({
    model: task.model,
    apiKey: task.api_key,
    configuration: { baseURL: task.base_url, defaultHeaders: task.headers },
  }),
  tools: [asTool(lookUp, { name: tool.name, description: tool.description, schema: tool.parameters })],
  systemPrompt: instructions,
});
let messages = [];
for (const { text, stream } of task.turns) {
  messages.push({ role: "user", content: text });
  if (stream) {
    for await (const [mode, told] of await agent.stream({ messages }, { streamMode: ["messages", "values"] })) {
      if (mode === "values") messages = told.messages;
    }
  } else {
    messages = (await agent.invoke({ messages })).messages;
  }
  tell(messages.at(-1).content);
}
