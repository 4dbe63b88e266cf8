/** TransformerEngine's environment variables. */

/** The value of an environment variable, if set. Recipes read it when constructed; an explicit option takes precedence. */
export function environmentText(name: string): string | undefined {
  return globalThis.process?.env[name];
}

/** Whether an environment variable is set to 1. Recipes read it when constructed; an explicit option takes precedence. */
export function environment(name: string): boolean {
  return environmentText(name) === "1";
}
