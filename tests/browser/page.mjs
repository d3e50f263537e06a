// What a page can do with the proxy, by OpenAI's SDK and by all that a browser offers besides; its server hears of it.

import OpenAI from "/openai/index.mjs";

const proxy = new URLSearchParams(location.search).get("proxy");
const messages = [{ role: "user", content: "Hello" }];
const chat = JSON.stringify({ model: "gpt-test", messages });
const client = new OpenAI({ baseURL: `${proxy}/v1`, apiKey: "sk-page", dangerouslyAllowBrowser: true, maxRetries: 0 });

async function bySDK() {
  const { data, response } = await client.chat.completions
    .create({ model: "gpt-test", messages, stream: true })
    .withResponse();
  let text = "";
  let chunks = 0;
  for await (const chunk of data) {
    text += chunk.choices[0]?.delta?.content ?? "";
    chunks += 1;
  }
  return { text, chunks, session: response.headers.get("x-unabridged-session") };
}

async function error() {
  const headers = { "X-Unabridged-Policy": "nonesuch" };
  return await client.chat.completions.create({ model: "gpt-test", messages }, { headers }).catch((error) => error.code);
}

// A request of these needs no preflight: all that stands between the page and the upstream is the proxy.
async function read(path, asked) {
  return await (await fetch(proxy + path, asked)).text();
}

function loaded(element, place) {
  return new Promise((resolve) => {
    element.onload = element.onerror = () => resolve(null);
    Object.assign(element, place);
    document.body.append(element);
  });
}

function byForm() {
  const frame = Object.assign(document.createElement("iframe"), { name: "answer" });
  const form = Object.assign(document.createElement("form"), {
    action: `${proxy}/v1/chat/completions`,
    method: "POST",
    enctype: "text/plain",
    target: "answer",
  });
  // One field, whose name and value are JSON together with the `=` between them.
  const field = Object.assign(document.createElement("input"), { name: `${chat.slice(0, -1)},"x":"`, value: `"}` });
  form.append(field);
  document.body.append(frame, form);
  return new Promise((resolve) => {
    frame.onload = () => resolve(null);
    form.submit();
  });
}

const plain = { method: "POST", body: chat, headers: { "Content-Type": "text/plain" } };
const ways = {
  sdk: bySDK,
  error,
  models: () => read("/v1/models"),
  plain: () => read("/v1/responses", plain),
  blind: () => read("/v1/responses", { ...plain, mode: "no-cors" }),
  image: () => loaded(document.createElement("img"), { src: `${proxy}/v1/models` }),
  script: () => loaded(document.createElement("script"), { src: `${proxy}/v1/models` }),
  form: byForm,
};
const told = {};
for (const [name, way] of Object.entries(ways)) {
  try {
    told[name] = await way();
  } catch (error) {
    told[name] = null;
  }
}
await fetch("/told", { method: "POST", body: JSON.stringify(told) });
