/** The option --tensors: names and patterns of tensors. */
import { type Option, optional } from "./options.js";

/** The option --tensors of a command; `what` says what happens to the tensors. */
export function tensorsOption(what: string): Option<readonly string[] | undefined> {
  return optional({
    placeholder: "GLOB,…",
    help: `${what}; in a name, * stands for any text and ? for one character`,
    parse: (text) => text.split(","),
  });
}
