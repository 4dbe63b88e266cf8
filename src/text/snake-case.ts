/** Names with underscores, as Python has them. */

/** Returns a camelCase name with an underscore and a small letter in place of each capital letter. */
export function snakeCase(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
