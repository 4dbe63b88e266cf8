/** The browser that runs these tests: one that the system has. */
import { existsSync } from "node:fs";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Its path, or undefined. */
export const CHROMIUM = PLACES.find((path) => existsSync(path));

/** Why nothing of this runs, where nothing does. */
export const NO_CHROMIUM = `no Chromium is installed: none of ${PLACES.join(", ")} is there`;

/** Says, before the tests, which browser runs them or why none does. */
export function setup(): void {
  process.stdout.write(`browser tests: ${CHROMIUM ? `in ${CHROMIUM}` : `skipped: ${NO_CHROMIUM}`}\n`);
}
