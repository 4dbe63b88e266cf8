/** Records the memory that a command does not free: the live bytes of each backend when the backend is disposed of. */
import { afterAll, beforeAll } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { openBackend } from "../../../src/backends/open.js";

/** Records the live bytes of each reference backend at its disposal while the tests of a file run. */
export function useLiveAtClose(): number[] {
  const liveBytes: number[] = [];
  let restore = (): void => {};
  beforeAll(async () => {
    const backend = await openBackend("wasm", { threads: 1 });
    const prototype = Object.getPrototypeOf(backend) as Backend;
    const { dispose } = prototype;
    prototype.dispose = function (this: Backend) {
      liveBytes.push(this.memoryUse().live);
      return dispose.call(this);
    };
    restore = () => {
      prototype.dispose = dispose;
    };
    await dispose.call(backend);
  });
  afterAll(() => restore());
  return liveBytes;
}
