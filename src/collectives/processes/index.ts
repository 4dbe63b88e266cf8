/** Groups of processes, for hosts that have processes. */
export { openProcessGroup } from "./open.js";
export { localRank, type ProcessGroupOptions, type TransportName } from "./rendezvous.js";
