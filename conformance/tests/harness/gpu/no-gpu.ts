import { missingBackends } from "../../../../src/backends/open.js";

/** Why there is no GPU; undefined where there is one. */
export const NO_GPU: string | undefined = missingBackends()
  .map(({ reason, attempts }) => [reason, ...attempts].join("; "))
  .at(0);
