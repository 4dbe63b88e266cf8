/** Which tests of ranks with a GPU each run here. */
import { describe } from "vitest";
import { cudaDevices } from "../../../src/backends/open.js";

/** Ranks: 8, 4 or 2, as there are GPUs. */
export const GPUS = [8, 4, 2].find((count) => count <= cudaDevices().length) ?? 2;

/** As `describe`, skipped with the reason where there are too few GPUs. */
export function describeOnRanks(name: string, body: () => void): void {
  const { length } = cudaDevices();
  if (length >= 2) describe(`${name}: ${GPUS} ranks`, body);
  else describe.skip(`${name} (two GPUs are needed; ${length} are here)`, body);
}
