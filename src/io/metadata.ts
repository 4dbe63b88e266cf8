/** Checks of a file's metadata, which map keys to strings. */
import { ArgumentError } from "../errors.js";
import { describe } from "../options.js";

/** Throws `ArgumentError` unless the value is a plain object of strings. */
export function requireMetadata(caller: string, metadata: unknown): void {
  const prototype: unknown =
    typeof metadata === "object" && metadata !== null && Object.getPrototypeOf(metadata);
  if (prototype !== null && prototype !== Object.prototype)
    throw new ArgumentError(
      `${caller}: metadata is ${describe(metadata)}; it must be a plain object of strings`,
    );
  for (const [key, value] of Object.entries(metadata as object)) {
    if (typeof value === "string") continue;
    throw new ArgumentError(`${caller}: metadata.${key} is ${describe(value)}; it must be a string`);
  }
}
