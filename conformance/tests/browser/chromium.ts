/** Finds the browser that is installed on this system. */
import { existsSync } from "node:fs";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** The path of the browser; undefined if none is installed. */
export const CHROMIUM = PLACES.find((path) => existsSync(path));

/** The reason why the browser tests are skipped if no browser is installed. */
export const NO_CHROMIUM = `no Chromium is installed: none of ${PLACES.join(", ")} is there`;

/** Prints, before the tests, which browser runs them, or why they are skipped. */
export function setup(): void {
  process.stdout.write(`browser tests: ${CHROMIUM ? `in ${CHROMIUM}` : `skipped: ${NO_CHROMIUM}`}\n`);
}
