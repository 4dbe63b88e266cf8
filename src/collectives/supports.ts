/** Answers which operations of a group have defined bits. */
import { EXACT, type Support } from "../backends/backend.js";
import type { CollectiveArgs, CollectiveName, Reduction } from "./communicator.js";
import { supportsPlan } from "./plan.js";

/** The answer of communicators that move bytes and add by plans. */
export function supportsCollective<K extends CollectiveName>(_op: K, args: CollectiveArgs[K]): Support {
  const reduction = "reduction" in args ? (args.reduction as Reduction) : undefined;
  return reduction && "plan" in reduction ? supportsPlan(reduction.plan) : EXACT;
}
