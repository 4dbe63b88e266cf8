/** Says, before the tests on a GPU, which one runs them or why none does. */
import { cudaDevices } from "../../../../src/backends/open.js";
import { NO_GPU } from "./no-gpu.js";

export function setup(): void {
  const [gpu] = cudaDevices();
  process.stdout.write(gpu ? `gpu tests: on ${gpu.name}\n` : `gpu tests: skipped: ${NO_GPU}\n`);
}
