/** The environment variables of TransformerEngine. */

/**
 * Returns the value of an environment variable, or undefined if it is not set. Constructors of recipes call this for options
 * that are not given.
 */
export function environmentText(name: string): string | undefined {
  return globalThis.process?.env[name];
}

/** Returns whether an environment variable is set to 1. Constructors of recipes call this for options that are not given. */
export function environment(name: string): boolean {
  return environmentText(name) === "1";
}
