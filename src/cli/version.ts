/** This package's version. */
import { createRequire } from "node:module";

const manifest = createRequire(import.meta.url)("lockstep/package.json") as { readonly version: string };

export const VERSION = manifest.version;
