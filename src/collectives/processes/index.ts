/** Process groups, for platforms with several processes. */
export { openProcessGroup } from "./open.js";
export { localRank, type ProcessGroupOptions, type TransportName } from "./rendezvous.js";
