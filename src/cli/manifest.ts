/** Values from this package's package.json. */
import { createRequire } from "node:module";

const { version } = createRequire(import.meta.url)("lockstep/package.json") as { readonly version: string };

export const VERSION = version;
