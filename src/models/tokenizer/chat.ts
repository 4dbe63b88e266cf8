/** Chat templates, which write a conversation as the text that a model was trained on. */
import { Template } from "@huggingface/jinja";
import { ArgumentError, FileError, messageOf } from "../../errors.js";
import { boolean, describe, membersOfPlain, optionsOf, outside, ownList, text } from "../../options.js";
import { renderBounded } from "./template.js";

/** A message of a conversation. Templates read `role` and `content`, and some read other fields. */
export type ChatMessage = Readonly<Record<string, unknown>> & {
  /** The speaker: "system", "user" or "assistant", or another role that the template has. */
  readonly role: string;
};

/** Options of `Tokenizer.applyChatTemplate`. All fields are optional. */
export interface ChatTemplateOptions {
  /** Whether to append the prefix of the model's answer. Default true. */
  readonly addGenerationPrompt?: boolean | undefined;
  /** The name of the template. Default "default". */
  readonly template?: string | undefined;
  /** Other variables of the template, such as `tools` or `enable_thinking`. Default: none. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
}

const variables = (caller: string, name: string, value: unknown) => {
  const members = membersOfPlain(caller, name, value);
  if (!members) throw outside(caller, name, value, "an object with the variables of the template");
  return Object.fromEntries(members);
};

export const checkChatTemplate = optionsOf<ChatTemplateOptions>({
  addGenerationPrompt: boolean,
  template: text,
  variables,
});

/** Returns a copy of the messages. Throws `ArgumentError` for anything but objects with a role. */
export function requireMessages(
  caller: string,
  messages: unknown,
): readonly Readonly<Record<string, unknown>>[] {
  return ownList(caller, "messages", messages, (each, i) => {
    const members = membersOfPlain(caller, `messages[${i}]`, each);
    const message = members && Object.fromEntries(members);
    if (typeof message?.role === "string") return message;
    throw new ArgumentError(
      `${caller}: messages[${i}] is ${describe(each)}; it must be an object with a role, as { role: "user", content: "Hi" }`,
    );
  });
}

/** Renders a template. Throws `FileError` for a template that cannot be parsed, `ArgumentError` if it refuses the messages. */
export function render(path: string, source: string, values: Readonly<Record<string, unknown>>): string {
  const template = parseTemplate(path, source);
  try {
    return renderBounded(template, values);
  } catch (cause) {
    throw new ArgumentError(
      `applyChatTemplate: the chat template of ${path} refuses it: ${messageOf(cause)}`,
      {
        cause,
      },
    );
  }
}

function parseTemplate(path: string, source: string): Template {
  try {
    return new Template(source);
  } catch (cause) {
    throw new FileError(`${path}: the chat template cannot be parsed: ${messageOf(cause)}`, { cause });
  }
}
