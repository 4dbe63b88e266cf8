/** Decides which tests of ranks with one GPU each can run on this machine. */
import { describe } from "vitest";
import { cudaDevices } from "../../../src/backends/open.js";

/** The number of ranks: 8, 4 or 2, depending on the number of GPUs. Undefined if there are fewer than two. */
export const GPUS = [8, 4, 2].find((count) => count <= cudaDevices().length) ?? 2;

/** As `describe`. With too few GPUs, the tests are skipped with the reason. */
export function describeOnRanks(name: string, body: () => void): void {
  const { length } = cudaDevices();
  if (length >= 2) describe(`${name}: ${GPUS} ranks`, body);
  else describe.skip(`${name} (two GPUs are needed; ${length} are here)`, body);
}
