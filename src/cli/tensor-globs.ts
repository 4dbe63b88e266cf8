/** The option --tensors: names and patterns of tensors. */
import { type Option, optional } from "./options.js";

/** The option --tensors of a command; `action` says what happens to the tensors. */
export function tensorsOption(action: string): Option<readonly string[] | undefined> {
  return optional({
    placeholder: "GLOB,…",
    help: `${action}; in a name, * stands for any text and ? for one character`,
    parse: (text) => text.split(","),
  });
}
