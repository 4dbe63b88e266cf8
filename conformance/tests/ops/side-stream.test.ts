/** On the reference, the body of `onSideStream` runs at once, in program order; a body that waits is refused. */
import { describe, expect, it } from "vitest";
import { ArgumentError } from "../../../src/errors.js";
import { tensor } from "../../../src/ops/create.js";
import { add } from "../../../src/ops/elementwise/operators.gen.js";
import { onSideStream } from "../../../src/ops/side-stream.js";
import { testInScope, useBackend } from "../harness/suite.js";
import { LoggingBackend } from "../harness/surface/logging-backend.js";

const backend = useBackend();

describe("the body of onSideStream", () => {
  testInScope("runs once, between what comes before and after it, and gives its result", () => {
    const x = tensor(backend(), [1, 2]);
    add(x, x, { out: x });
    const sum = onSideStream(backend(), () => add(x, x));
    add(x, x, { out: x });
    expect([[...sum.dataSync()], [...x.dataSync()]]).toEqual([
      [4, 8],
      [4, 8],
    ]);
  });

  testInScope("throws its own errors", () => {
    const body = () => {
      throw new RangeError("its own");
    };
    expect(() => onSideStream(backend(), body)).toThrow(new RangeError("its own"));
  });

  it("may not be async, whether or not the backend has a second stream", () => {
    for (const tensorBackend of [backend(), new LoggingBackend(backend())]) {
      const waits = () => onSideStream(tensorBackend, async () => 1);
      expect(waits).toThrow(ArgumentError);
      expect(waits).toThrow(/^onSideStream: .*what it does after an await runs in its turn/);
    }
  });
});
