/** Start of an example, and its exit codes. */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const BAD_USAGE = 2;

/** Runs an example and sets the exit code: 2 for bad usage, 1 for any other failure, each with a message. */
export async function start(name, body) {
  if (!existsSync(fileURLToPath(import.meta.resolve("lockstep")))) {
    console.error(`${name}: the package is not built; run \`npm run build\` first`);
    process.exit(BAD_USAGE);
  }
  try {
    await body();
  } catch (error) {
    const isUsage = String(error.code).startsWith("ERR_PARSE_ARGS") || error.code === "ARGUMENT";
    console.error(`${name}: ${error.message}`);
    process.exitCode = isUsage ? BAD_USAGE : 1;
  }
}
