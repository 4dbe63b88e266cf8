/** Ranks of one process that cannot continue together: each throws an error with the reason and frees its memory. */
import * as fc from "fast-check";
import { afterEach, describe, expect, it } from "vitest";
import { ProcessGroup } from "../../../../src/collectives/group.js";
import { LocalCommunicator } from "../../../../src/collectives/local.js";
import { loopbackGroup } from "../../../../src/collectives/loopback/loopback.js";
import { ArgumentError, DisposedError, DistributedError } from "../../../../src/errors.js";
import { empty, tensor } from "../../../../src/ops/create.js";
import { add } from "../../../../src/ops/elementwise/operators.gen.js";
import type { Shape } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { draws } from "../../harness/draws.js";

const open: ProcessGroup[] = [];
async function ranks(size: number, timeoutMs = 5000): Promise<readonly ProcessGroup[]> {
  const groups = await loopbackGroup(size, { timeoutMs });
  open.push(...groups);
  return groups;
}
afterEach(async () => {
  for (const group of open.splice(0)) await group.dispose().catch(() => undefined);
});

const values = (group: ProcessGroup, length = 4): Tensor<"f32"> =>
  tensor(group.backend, new Float32Array(length).fill(1));

/** The error that a call, or reading its result, throws. */
async function failureOf(body: () => unknown): Promise<DistributedError> {
  try {
    const result = await body();
    if (result && typeof result === "object" && "data" in result) await (result as Tensor).data();
  } catch (error) {
    if (error instanceof DistributedError) return error;
    throw error;
  }
  throw new Error("nothing failed");
}

const bf16Values = (group: ProcessGroup) => empty(group.backend, "bf16", [4]).write(new Uint16Array(4));
const DISAGREEMENTS: Readonly<Record<string, (group: ProcessGroup) => unknown>> = {
  "another operation": (group) => group.allGather(values(group)),
  "another shape": (group) => group.allReduce(values(group, 5)),
  "another type": (group) => group.allReduce(bf16Values(group)),
  "another reduction": (group) => group.allReduce(values(group), { reduction: "max" }),
  "another algorithm": (group) => group.allReduce(values(group), { plan: { algorithm: "ring" } }),
  "another order": (group) =>
    group.allReduce(values(group), { plan: { algorithm: "ring", order: [0, 2, 1] } }),
  "other splits": (group) =>
    group.allReduce(values(group), { plan: { algorithm: "ranked", splits: [4, 0, 0] } }),
  "a barrier": (group) => group.barrier(),
  "a split": (group) => group.split({ dp: 3 }),
  "maxima of nothing": (group) => group.reduceMax([]),
  "a message": (group) => group.send(values(group), (group.rank + 1) % 3),
};

/** Calls of every kind. All variants have tensors with the same number of bytes. */
interface CallArguments {
  readonly dtype: "bf16" | "f16";
  readonly shape: Shape;
  readonly reduction: "sum" | "mean" | "max";
}
const ARGUMENTS: CallArguments = { dtype: "bf16", shape: [4, 2], reduction: "sum" };
const zeros = ({ backend }: ProcessGroup, { dtype, shape }: CallArguments): Tensor<"bf16" | "f16"> =>
  empty(backend, dtype, shape).write(new Uint16Array(8));
const CALLS: Readonly<Record<string, (group: ProcessGroup, args: CallArguments) => unknown>> = {
  allGather: (group, args) => group.allGather(zeros(group, args)),
  reduceScatter: (group, args) => group.reduceScatter(zeros(group, args), { reduction: args.reduction }),
  allReduce: (group, args) => group.allReduce(zeros(group, args), { reduction: args.reduction }),
  broadcast: (group, args) => group.broadcast(zeros(group, args)),
  allToAll: (group, args) => group.allToAll(zeros(group, args)),
  "send and recv": (group, args) =>
    group.rank === 0 ? group.send(zeros(group, args), 1) : group.recv(zeros(group, args), 0),
};
const DIFFERENCES: Readonly<Record<string, Partial<CallArguments>>> = {
  dtype: { dtype: "f16" },
  // the same rows, each of another shape
  shape: { shape: [4, 2, 1] },
  "reduction, a mean": { reduction: "mean" },
  "reduction, a maximum": { reduction: "max" },
};
const SAME_BYTES = Object.keys(CALLS).flatMap((name) =>
  Object.entries(DIFFERENCES)
    .filter(([, { reduction }]) => !reduction || ["allReduce", "reduceScatter"].includes(name))
    .flatMap(([field, difference]) =>
      [0, 1].map((differingRank) => [name, field, differingRank, difference] as const),
    ),
);

describe("ranks of one process that disagree", () => {
  const cases = Object.keys(DISAGREEMENTS).flatMap((name) => [0, 1, 2].map((rank) => [name, rank] as const));
  it.each(cases)("%s, called by rank %i", async (name, faultyRank) => {
    const groups = await ranks(3);
    const failures = await Promise.all(
      groups.map((group) =>
        failureOf(() =>
          group.rank === faultyRank ? DISAGREEMENTS[name]?.(group) : group.allReduce(values(group)),
        ).catch(
          // a call without a result to read reports the failure in the next call
          () => failureOf(() => group.barrier()),
        ),
      ),
    );
    for (const failure of failures) {
      expect(failure).toMatchObject({ failure: "disagreement", code: "DISTRIBUTED" });
      expect(failure.message).toContain(`rank ${faultyRank} called`);
    }
    const otherFailures = failures.filter((_, rank) => rank !== faultyRank);
    for (const { operation, message } of otherFailures)
      expect(message.startsWith(`${operation}: `)).toBe(true);
    expect(otherFailures.map(({ operation }) => operation)).toContain("allReduce");
  });

  it.each(["allReduce", "reduceScatter"] as const)("%s, of other subjects", async (name) => {
    const groups = await ranks(2);
    const failures = await Promise.all(
      groups.map((group) =>
        failureOf(() => group.withSubject(`part ${group.rank}`, () => group[name](values(group)))),
      ),
    );
    for (const { failure, message } of failures) {
      expect(failure).toBe("disagreement");
      for (const part of ["part 0", "part 1"]) expect(message).toContain(`for ${part}`);
    }
  });

  it("send and recv, of a rank to itself, which is refused", async () => {
    for (const group of await ranks(3)) {
      const message = new RegExp(`is ${group.rank}, this rank itself; give another`);
      expect(() => group.send(values(group), group.rank)).toThrow(message);
      expect(() => group.recv(values(group), group.rank)).toThrow(message);
    }
  });

  it.each([
    [
      "a different mesh",
      (group: ProcessGroup, differs: boolean) => group.split(differs ? { dp: 2 } : { tp: 2 }),
    ],
    [
      "other rows",
      (group: ProcessGroup, differs: boolean) =>
        group.allGather(values(group), { rows: differs ? [5, 4] : [4, 4] }),
    ],
    [
      "another root",
      (group: ProcessGroup, differs: boolean) => group.broadcast(values(group), { root: differs ? 1 : 0 }),
    ],
    [
      "other rows received",
      (group: ProcessGroup, differs: boolean) =>
        group.allToAll(values(group), { sent: [2, 2], received: differs ? [3, 2] : [2, 2] }),
    ],
  ])("%s", async (_name, call) => {
    const [rank0, rank1] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    const firstFailure = failureOf(() => call(rank0, false)).catch(() => failureOf(() => rank0.barrier()));
    const secondFailure = failureOf(() => call(rank1, true)).catch(() => failureOf(() => rank1.barrier()));
    for (const { failure } of await Promise.all([firstFailure, secondFailure]))
      expect(failure).toBe("disagreement");
  });
});

describe("ranks of one process whose tensors have as many bytes", () => {
  it.each(SAME_BYTES)(
    "%s, which differ in %s on rank %i",
    async (name, _field, differingRank, difference) => {
      const groups = await ranks(2);
      const failures = await Promise.all(
        groups.map((group) =>
          failureOf(() =>
            CALLS[name]?.(group, group.rank === differingRank ? { ...ARGUMENTS, ...difference } : ARGUMENTS),
          ).catch(() => failureOf(() => group.barrier())),
        ),
      );
      for (const { failure } of failures) expect(failure).toBe("disagreement");
    },
  );
});

describe("groups of several splits", () => {
  it.each([{ dp: 2 }, { tp: 2, dp: 1 }])("get no messages of each other, %o", async (mesh) => {
    const groups = await ranks(2, 50);
    const axis = "tp" in mesh ? "tp" : "dp";
    const meshes = groups.map((group) => [group.split(mesh), group.split(mesh)] as const);
    const failures = await Promise.all(
      meshes.map((groupsOfRank, rank) =>
        failureOf(() => groupsOfRank[rank === 0 ? 0 : 1][axis].allReduce(values(groupsOfRank[0][axis]))),
      ),
    );
    for (const { failure, operation } of failures)
      expect([failure, operation]).toEqual(["deadline", "allReduce"]);
  });
});

describe("a rank that sends itself other rows than it receives", () => {
  it.each([
    [2, 1],
    [1, 2],
    [0, 2],
    [3, 0],
  ])("%i and %i: is refused without a message to other ranks", async (sentRows, receivedRows) => {
    const [rank0, rank1] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    expect(() =>
      rank0.allToAll(values(rank0), { sent: [sentRows, 4 - sentRows], received: [receivedRows, 2] }),
    ).toThrowError(ArgumentError);
    expect(() =>
      rank1.allToAll(values(rank1), { sent: [4 - sentRows, sentRows], received: [2, receivedRows] }),
    ).toThrowError(new RegExp(`sends ${sentRows} rows to itself and receives ${receivedRows}`));
    const sums = [rank0, rank1].map((group) => group.allReduce(values(group)));
    for (const sum of sums) expect(Array.from(await sum.data())).toEqual([2, 2, 2, 2]);
  });
});

/** Calls after which rank 0 leaves, and the result of rank 1. */
const LAST_CALLS: Readonly<
  Record<string, readonly [(group: ProcessGroup, x: Tensor<"f32">) => Tensor, number[]]>
> = {
  allReduce: [(group, x) => group.allReduce(x), [2, 2]],
  allGather: [(group, x) => group.allGather(x), [1, 1, 1, 1]],
  broadcast: [(group, x) => group.broadcast(x), [1, 1]],
  "two of them": [(group, x) => group.broadcast(group.allReduce(x)), [2, 2]],
  "a message of a result": [
    (group, x) => {
      const sum = group.allReduce(x);
      const doubledSum = add(sum, sum);
      if (group.rank === 1) return group.recv(doubledSum, 0);
      group.send(doubledSum, 1);
      return doubledSum;
    },
    [4, 4],
  ],
};

describe("a rank that leaves", () => {
  it.each(Object.keys(LAST_CALLS))("takes part before in what it has called: %s", async (name) => {
    const [rank0, rank1] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    const [call, expected] = LAST_CALLS[name] as (typeof LAST_CALLS)[string];
    call(rank0, values(rank0, 2));
    const departure = rank0.dispose();
    expect([...((await call(rank1, values(rank1, 2)).data()) as Float32Array)]).toEqual(expected);
    await departure;
  });
});

describe("a rank that does not make the call", () => {
  it("is named in the error after the timeout", async () => {
    const [rank0, rank1] = (await ranks(3, 50)) as [ProcessGroup, ProcessGroup];
    const [x, y] = [rank0.allReduce(values(rank0)), rank1.allReduce(values(rank1))];
    const failures = await Promise.all([failureOf(() => x.data()), failureOf(() => y.data())]);
    for (const failure of failures)
      expect(failure).toMatchObject({ failure: "deadline", operation: "allReduce", rank: 2 });
  });

  it("is named by a blocking read, and can still make the call", async () => {
    const [rank0, rank1] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    const sum = rank0.allReduce(values(rank0));
    const doubledSum = add(sum, sum);
    expect(() => doubledSum.dataSync()).toThrowError(/rank 1 has not called yet.*await data\(\)/);
    rank1.allReduce(values(rank1));
    expect(Array.from(doubledSum.dataSync())).toEqual([4, 4, 4, 4]);
  });

  it("is reported as lost after it has left", async () => {
    const [rank0, rank1] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    const sum = rank0.allReduce(values(rank0));
    await rank1.dispose();
    expect(await failureOf(() => sum.data())).toMatchObject({
      failure: "lost",
      operation: "allReduce",
      rank: 1,
    });
    expect(() => rank1.allReduce(values(rank1))).toThrowError(DisposedError);
  });
});

const oneRank = async (): Promise<ProcessGroup> => (await ranks(1))[0] as ProcessGroup;
const localGroup = async (): Promise<ProcessGroup> =>
  new ProcessGroup(new LocalCommunicator((await oneRank()).backend));

/**
 * Returns the outcome of each step on a group of one rank: `split` appends a group, `abort`, `call` and `dispose` take
 * any of the groups. Only the last outcome, of the first group's `dispose`, ends the first group.
 */
async function outcomesOfOneRank(
  open: () => Promise<ProcessGroup>,
  steps: readonly string[],
): Promise<readonly unknown[]> {
  const first = await open();
  const groups = [first];
  const x = values(first);
  const results: Tensor[] = [];
  const run: Readonly<Record<string, (group: ProcessGroup, index: number) => unknown>> = {
    split: (group) => groups.push(group.split({}).dp),
    abort: (group, index) => group.abort(`reason ${index}`),
    call: (group) => results.push(group.allReduce(x)),
    dispose: (group) => (group === first ? undefined : group.dispose()),
  };
  const outcomes: unknown[] = [];
  const record = async (body: () => unknown): Promise<void> => {
    try {
      await body();
      outcomes.push("succeeds");
    } catch (error) {
      const { name, message } = error as Error;
      // a split of a group with a transport also names the message in which ranks compare their arguments
      outcomes.push([name, message.slice(message.indexOf(": "))]);
    }
  };
  for (const [index, step] of steps.entries()) {
    const [name = "", number] = step.split(" ");
    const group = groups[Number(number) % groups.length] as ProcessGroup;
    await record(() => run[name]?.(group, index));
  }
  for (const operand of [x, ...results]) operand.dispose();
  await record(() => first.dispose());
  return outcomes;
}

describe("a failed group", () => {
  it("makes every later call and every read of an unfinished result fail", async () => {
    const [rank0, rank1] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    const x = values(rank0);
    const sum = rank0.allReduce(x);
    rank1.abort("the loss is not a number");
    expect(await failureOf(() => sum.data())).toMatchObject({ failure: "aborted", rank: 1 });
    expect(() => rank0.broadcast(x)).toThrowError(/rank 1 ended the group: the loss is not a number/);
    expect(() => add(x, x)).toThrowError(DistributedError);
    expect((await failureOf(() => rank1.barrier())).failure).toBe("aborted");
  });

  it.each([
    ["splits that are called after an abort of their parent", ["split 0", "split 1", "abort 0", "call 2"], 2],
    ["a parent that is called after an abort of its split", ["split 0", "split 1", "abort 2", "call 0"], 2],
    ["the first of two reasons", ["abort 0", "abort 0", "call 0"], 0],
    ["a failure that no call has thrown", ["split 0", "abort 1"], 1],
  ])(
    "fails in the same way with and without a transport of one rank: %s",
    async (_name, steps, abortingStep) => {
      const outcomes = await outcomesOfOneRank(localGroup, steps);
      expect(outcomes).toEqual(await outcomesOfOneRank(oneRank, steps));
      expect(outcomes).toContainEqual([
        "DistributedError",
        `: rank 0 ended the group: reason ${abortingStep}`,
      ]);
    },
  );

  it("fails in the same way with and without a transport of one rank, in every order of calls", async () => {
    const step = fc
      .tuple(fc.constantFrom("split", "abort", "call", "dispose"), fc.nat(3))
      .map(([name, index]) => `${name} ${index}`);
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 2, maxLength: 8 }), async (steps) => {
        expect(await outcomesOfOneRank(localGroup, steps)).toEqual(await outcomesOfOneRank(oneRank, steps));
      }),
      { numRuns: draws(200, 20) },
    );
  });

  it("frees its memory, and dispose throws a failure that no call has thrown", async () => {
    const [rank0, rank1] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    const x = values(rank0);
    const sum = rank0.allReduce(x);
    const doubledSum = add(sum, x);
    for (const sharedTensor of [x, sum]) sharedTensor.dispose();
    expect(rank0.backend.memoryUse().blocks).toBe(3);
    rank1.abort();
    doubledSum.dispose();
    expect(rank0.backend.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
    await expect(rank0.dispose()).rejects.toThrowError(DistributedError);
    await expect(rank0.dispose()).resolves.toBeUndefined();
  });

  it("reports the reason of the rank whose work failed", async () => {
    const [rank0, rank1] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    const sums = [rank0, rank1]
      .map((group) => group.backend)
      .map((backend) => empty(backend, "f32", [1 << 20]));
    const [x, y] = sums as [Tensor<"f32">, Tensor<"f32">];
    const pendingSum = rank0.allReduce(x);
    // the sum needs memory for the parts of other ranks, and all memory is taken
    const blockers: Tensor[] = [];
    for (let size = 1 << 29; size >= 1 << 10; size /= 2) {
      try {
        for (;;) blockers.push(empty(rank1.backend, "u8", [size]));
      } catch {
        // smaller blocks may still fit
      }
    }
    const freedBlock = blockers.pop();
    freedBlock?.dispose();
    expect(() => rank1.allReduce(y, { out: y })).toThrowError(/out of memory/);
    expect(await failureOf(() => pendingSum.data())).toMatchObject({
      failure: "lost",
      operation: "allReduce",
      rank: 1,
    });
  });
});

describe("a tensor of another rank", () => {
  it("is refused without a message to other ranks", async () => {
    const [rank0, rank1] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    expect(() => rank0.allReduce(values(rank1))).toThrowError(/does not live on the group's backend/);
    const sums = [rank0, rank1].map((group) => group.allReduce(values(group)));
    for (const sum of sums) expect(Array.from(await sum.data())).toEqual([2, 2, 2, 2]);
  });
});
