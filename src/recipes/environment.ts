/** Switches of the environment. */

/** Whether one of TransformerEngine's switches is on. Read as a recipe is made; an option that is given wins. */
export function environment(name: string): boolean {
  return globalThis.process?.env[name] === "1";
}
