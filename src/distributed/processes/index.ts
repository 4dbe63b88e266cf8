/** Groups of processes, for hosts that have processes. */
export { openProcessGroup } from "./open.js";
export type { ProcessGroupOptions, TransportName } from "./place.js";
