// The Node programs' side of a test; `../python/dialogue.py` says what goes in and out.

import { readFileSync } from "node:fs";

export const instructions = "You look words up.";

export function read() {
  return JSON.parse(readFileSync(0, "utf8"));
}

export function tell(answer) {
  process.stdout.write(JSON.stringify({ answer }) + "\n");
}

export function lookUp({ word }) {
  return `${word}: ` + `a ${word} is what people call a ${word}; `.repeat(8);
}

export const tool = {
  name: "look_up",
  description: "Look a word up in the dictionary.",
  parameters: {
    type: "object",
    properties: { word: { type: "string" } },
    required: ["word"],
    additionalProperties: false,
  },
};
