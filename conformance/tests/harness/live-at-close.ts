/** What a command line leaves allocated: the live bytes of each backend at the moment it is disposed of. */
import type * as opening from "../../../src/backends/open.js";

/** Live bytes, one entry for each backend disposed of. */
export const liveAtClose: number[] = [];

/** The module that opens backends, with those it opens recorded; for `vi.mock`. */
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
