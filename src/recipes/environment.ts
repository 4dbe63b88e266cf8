/** Switches of the environment. */

/** The text of one of TransformerEngine's variables, if it is set. Read as a recipe is made; an option that is given wins. */
export function environmentText(name: string): string | undefined {
  return globalThis.process?.env[name];
}

/** Whether one of TransformerEngine's switches is on. Read as a recipe is made; an option that is given wins. */
export function environment(name: string): boolean {
  return environmentText(name) === "1";
}
