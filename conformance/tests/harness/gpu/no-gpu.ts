import { missingBackends } from "../../../../src/backends/open.js";

/** The reason why no GPU is available; undefined if one is. */
export const NO_GPU: string | undefined = missingBackends()
  .map(({ reason, attempts }) => [reason, ...attempts].join("; "))
  .at(0);
