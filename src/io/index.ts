/** Files: for hosts that have them. */
export { type CheckpointState, loadCheckpoint, type SavedState, saveCheckpoint } from "./checkpoint.js";
