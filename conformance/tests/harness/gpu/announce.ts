/** Prints, before the GPU tests, which GPU runs them, or why they are skipped. */
import { cudaDevices } from "../../../../src/backends/open.js";
import { NO_GPU } from "./no-gpu.js";

export function setup(): void {
  const [gpu] = cudaDevices();
  process.stdout.write(gpu ? `gpu tests: on ${gpu.name}\n` : `gpu tests: skipped: ${NO_GPU}\n`);
}
