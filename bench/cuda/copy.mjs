// The ceilings: a device-to-device copy, which the public interface does not offer, called through the addon.
import { platform } from "../../dist/src/backends/platform/node.js";

const { exports: addon } = platform.loadAddon();

/** Copies between buffers of a context of its own; `wait` returns once they are done. */
export function openCopies() {
  const device = new addon.Device(0);
  return {
    /** A copy of as many bytes as a bf16 matrix of that size has, counted read and written. */
    copyCase([rows, columns]) {
      const bytes = rows * columns * 2;
      const buffers = [1, 2, 3].map(() => addon.allocate(device, bytes));
      const run = (i) => addon.copy(device, buffers[(i + 1) % 3], buffers[i % 3], bytes);
      return { name: `copy on the device ${rows}x${columns}`, bytes: 2 * bytes, run };
    },
    wait: () => addon.synchronize(device),
    close: () => addon.close(device),
  };
}
