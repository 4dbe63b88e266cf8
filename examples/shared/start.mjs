/** Starts an example and sets its exit code. */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const BAD_USAGE = 2;

/** Runs an example. The exit code is 2 for bad usage and 1 for any other failure; each prints a message. */
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
