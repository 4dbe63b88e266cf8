/** Records the memory that a command leaves allocated: the live bytes of each backend when it is disposed of. */
import type * as opening from "../../../src/backends/open.js";

/** The live bytes of each backend at its disposal. */
export const liveAtClose: number[] = [];

/** A replacement for the module that opens backends, for `vi.mock`. It records the backends that it opens. */
export function recordingOpen(module: typeof opening): typeof opening {
  const openBackend: typeof opening.openBackend = async (name, options) => {
    const backend = await module.openBackend(name, options);
    const dispose = backend.dispose.bind(backend);
    return Object.assign(backend, {
      dispose: () => {
        liveAtClose.push(backend.memoryUse().live);
        return dispose();
      },
    });
  };
  return { ...module, openBackend };
}
