/** Groups of processes: for hosts that have them. */
export { openProcessGroup } from "./open.js";
export type { ProcessGroupOptions } from "./place.js";
