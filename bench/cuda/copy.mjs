// The upper bound of memory-bound kernels: a device-to-device copy, called through the addon because the public interface
// has none.
import { platform } from "../../dist/src/backends/platform/node.js";

/** Copies between buffers of a separate context; `wait` returns after they have completed. */
export function openCopies() {
  const { exports: addon } = platform.loadAddon();
  const device = new addon.Device(0);
  return {
    /** A copy as large as a bf16 matrix of that size; bytes read and bytes written both count. */
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
