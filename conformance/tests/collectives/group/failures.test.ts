/** Ranks of one process that cannot continue together: each throws an error with the reason and frees its memory. */
import { afterEach, describe, expect, it } from "vitest";
import { ProcessGroup } from "../../../../src/collectives/group.js";
import { LocalCommunicator } from "../../../../src/collectives/local.js";
import { loopbackGroup } from "../../../../src/collectives/loopback/loopback.js";
import { ArgumentError, DisposedError, DistributedError } from "../../../../src/errors.js";
import { empty, tensor } from "../../../../src/ops/create.js";
import { add } from "../../../../src/ops/elementwise/operators.gen.js";
import type { Shape } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";

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
    const made = await body();
    if (made && typeof made === "object" && "data" in made) await (made as Tensor).data();
  } catch (error) {
    if (error instanceof DistributedError) return error;
    throw error;
  }
  throw new Error("nothing failed");
}

const half = (group: ProcessGroup) => empty(group.backend, "bf16", [4]).write(new Uint16Array(4));
const DISAGREEMENTS: Readonly<Record<string, (group: ProcessGroup) => unknown>> = {
  "another operation": (group) => group.allGather(values(group)),
  "another shape": (group) => group.allReduce(values(group, 5)),
  "another type": (group) => group.allReduce(half(group)),
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
interface Given {
  readonly dtype: "bf16" | "f16";
  readonly shape: Shape;
  readonly reduction: "sum" | "mean" | "max";
}
const GIVEN: Given = { dtype: "bf16", shape: [4, 2], reduction: "sum" };
const zeroed = ({ backend }: ProcessGroup, { dtype, shape }: Given): Tensor<"bf16" | "f16"> =>
  empty(backend, dtype, shape).write(new Uint16Array(8));
const CALLS: Readonly<Record<string, (group: ProcessGroup, given: Given) => unknown>> = {
  allGather: (group, given) => group.allGather(zeroed(group, given)),
  reduceScatter: (group, given) => group.reduceScatter(zeroed(group, given), { reduction: given.reduction }),
  allReduce: (group, given) => group.allReduce(zeroed(group, given), { reduction: given.reduction }),
  broadcast: (group, given) => group.broadcast(zeroed(group, given)),
  allToAll: (group, given) => group.allToAll(zeroed(group, given)),
  "send and recv": (group, given) =>
    group.rank === 0 ? group.send(zeroed(group, given), 1) : group.recv(zeroed(group, given), 0),
};
const OTHERWISE: Readonly<Record<string, Partial<Given>>> = {
  dtype: { dtype: "f16" },
  // the same rows, each of another shape
  shape: { shape: [4, 2, 1] },
  "reduction, a mean": { reduction: "mean" },
  "reduction, a maximum": { reduction: "max" },
};
const SAME_BYTES = Object.keys(CALLS).flatMap((name) =>
  Object.entries(OTHERWISE)
    .filter(([, { reduction }]) => !reduction || ["allReduce", "reduceScatter"].includes(name))
    .flatMap(([what, other]) => [0, 1].map((wrong) => [name, what, wrong, other] as const)),
);

describe("ranks of one process that disagree", () => {
  const cases = Object.keys(DISAGREEMENTS).flatMap((name) => [0, 1, 2].map((rank) => [name, rank] as const));
  it.each(cases)("%s, called by rank %i", async (name, faulty) => {
    const groups = await ranks(3);
    const failures = await Promise.all(
      groups.map((group) =>
        failureOf(() =>
          group.rank === faulty ? DISAGREEMENTS[name]?.(group) : group.allReduce(values(group)),
        ).catch(
          // a call without a result to read reports the failure in the next call
          () => failureOf(() => group.barrier()),
        ),
      ),
    );
    for (const failure of failures) {
      expect(failure).toMatchObject({ failure: "disagreement", code: "DISTRIBUTED" });
      expect(failure.message).toContain(`rank ${faulty} called`);
    }
    const others = failures.filter((_, rank) => rank !== faulty);
    for (const { operation, message } of others) expect(message.startsWith(`${operation}: `)).toBe(true);
    expect(others.map(({ operation }) => operation)).toContain("allReduce");
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
      const refused = new RegExp(`is ${group.rank}, this rank itself; give another`);
      expect(() => group.send(values(group), group.rank)).toThrow(refused);
      expect(() => group.recv(values(group), group.rank)).toThrow(refused);
    }
  });

  it.each([
    ["a different mesh", (group: ProcessGroup, wrong: boolean) => group.split(wrong ? { dp: 2 } : { tp: 2 })],
    [
      "other rows",
      (group: ProcessGroup, wrong: boolean) =>
        group.allGather(values(group), { rows: wrong ? [5, 4] : [4, 4] }),
    ],
    [
      "another root",
      (group: ProcessGroup, wrong: boolean) => group.broadcast(values(group), { root: wrong ? 1 : 0 }),
    ],
    [
      "other rows received",
      (group: ProcessGroup, wrong: boolean) =>
        group.allToAll(values(group), { sent: [2, 2], received: wrong ? [3, 2] : [2, 2] }),
    ],
  ])("%s", async (_name, call) => {
    const [zero, one] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    const first = failureOf(() => call(zero, false)).catch(() => failureOf(() => zero.barrier()));
    const second = failureOf(() => call(one, true)).catch(() => failureOf(() => one.barrier()));
    for (const { failure } of await Promise.all([first, second])) expect(failure).toBe("disagreement");
  });
});

describe("ranks of one process whose tensors have as many bytes", () => {
  it.each(SAME_BYTES)("%s, which differ in %s on rank %i", async (name, _field, wrong, other) => {
    const groups = await ranks(2);
    const failures = await Promise.all(
      groups.map((group) =>
        failureOf(() => CALLS[name]?.(group, group.rank === wrong ? { ...GIVEN, ...other } : GIVEN)).catch(
          () => failureOf(() => group.barrier()),
        ),
      ),
    );
    for (const { failure } of failures) expect(failure).toBe("disagreement");
  });
});

describe("groups of several splits", () => {
  it.each([{ dp: 2 }, { tp: 2, dp: 1 }])("get no messages of each other, %o", async (mesh) => {
    const groups = await ranks(2, 50);
    const axis = "tp" in mesh ? "tp" : "dp";
    const meshes = groups.map((group) => [group.split(mesh), group.split(mesh)] as const);
    const failures = await Promise.all(
      meshes.map((of, rank) => failureOf(() => of[rank === 0 ? 0 : 1][axis].allReduce(values(of[0][axis])))),
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
  ])("%i and %i: is refused without a message to other ranks", async (sent, received) => {
    const [zero, one] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    expect(() =>
      zero.allToAll(values(zero), { sent: [sent, 4 - sent], received: [received, 2] }),
    ).toThrowError(ArgumentError);
    expect(() => one.allToAll(values(one), { sent: [4 - sent, sent], received: [2, received] })).toThrowError(
      new RegExp(`sends ${sent} rows to itself and receives ${received}`),
    );
    const sums = [zero, one].map((group) => group.allReduce(values(group)));
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
      const twice = add(sum, sum);
      if (group.rank === 1) return group.recv(twice, 0);
      group.send(twice, 1);
      return twice;
    },
    [4, 4],
  ],
};

describe("a rank that leaves", () => {
  it.each(Object.keys(LAST_CALLS))("takes part before in what it has called: %s", async (name) => {
    const [zero, one] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    const [call, wanted] = LAST_CALLS[name] as (typeof LAST_CALLS)[string];
    call(zero, values(zero, 2));
    const left = zero.dispose();
    expect([...((await call(one, values(one, 2)).data()) as Float32Array)]).toEqual(wanted);
    await left;
  });
});

describe("a rank that does not make the call", () => {
  it("is named in the error after the timeout", async () => {
    const [zero, one] = (await ranks(3, 50)) as [ProcessGroup, ProcessGroup];
    const [x, y] = [zero.allReduce(values(zero)), one.allReduce(values(one))];
    const failures = await Promise.all([failureOf(() => x.data()), failureOf(() => y.data())]);
    for (const failure of failures)
      expect(failure).toMatchObject({ failure: "deadline", operation: "allReduce", rank: 2 });
  });

  it("is named by a blocking read, and can still make the call", async () => {
    const [zero, one] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    const sum = zero.allReduce(values(zero));
    const twice = add(sum, sum);
    expect(() => twice.dataSync()).toThrowError(/rank 1 has not called yet.*await data\(\)/);
    one.allReduce(values(one));
    expect(Array.from(twice.dataSync())).toEqual([4, 4, 4, 4]);
  });

  it("is reported as lost after it has left", async () => {
    const [zero, one] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    const sum = zero.allReduce(values(zero));
    await one.dispose();
    expect(await failureOf(() => sum.data())).toMatchObject({
      failure: "lost",
      operation: "allReduce",
      rank: 1,
    });
    expect(() => one.allReduce(values(one))).toThrowError(DisposedError);
  });
});

describe("a failed group", () => {
  it("makes every later call and every read of an unfinished result fail", async () => {
    const [zero, one] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    const x = values(zero);
    const sum = zero.allReduce(x);
    one.abort("the loss is not a number");
    expect(await failureOf(() => sum.data())).toMatchObject({ failure: "aborted", rank: 1 });
    expect(() => zero.broadcast(x)).toThrowError(/rank 1 ended the group: the loss is not a number/);
    expect(() => add(x, x)).toThrowError(DistributedError);
    expect((await failureOf(() => one.barrier())).failure).toBe("aborted");
  });

  it.each(["of one rank alone", "of a loopback"])(
    "%s makes the groups that it was split into fail",
    async (kind) => {
      const [loopback] = (await ranks(1)) as [ProcessGroup];
      const group =
        kind === "of a loopback" ? loopback : new ProcessGroup(new LocalCommunicator(loopback.backend));
      const { dp } = group.split({});
      const inner = dp.split({}).dp;
      const x = values(group);
      group.abort("the loss is not a number");
      for (const each of [group, dp, inner])
        expect(() => each.allReduce(x)).toThrowError(/the loss is not a number/);
      x.dispose();
    },
  );

  it("frees its memory, and dispose throws a failure that no call has thrown", async () => {
    const [zero, one] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    const x = values(zero);
    const sum = zero.allReduce(x);
    const twice = add(sum, x);
    for (const each of [x, sum]) each.dispose();
    expect(zero.backend.memoryUse().blocks).toBe(3);
    one.abort();
    twice.dispose();
    expect(zero.backend.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
    await expect(zero.dispose()).rejects.toThrowError(DistributedError);
    await expect(zero.dispose()).resolves.toBeUndefined();
  });

  it("reports the reason of the rank whose work failed", async () => {
    const [zero, one] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    const sums = [zero, one].map((group) => group.backend).map((backend) => empty(backend, "f32", [1 << 20]));
    const [x, y] = sums as [Tensor<"f32">, Tensor<"f32">];
    const first = zero.allReduce(x);
    // the sum needs memory for the parts of other ranks, and all memory is taken
    const taken: Tensor[] = [];
    for (let size = 1 << 29; size >= 1 << 10; size /= 2) {
      try {
        for (;;) taken.push(empty(one.backend, "u8", [size]));
      } catch {
        // smaller blocks may still fit
      }
    }
    const gone = taken.pop();
    gone?.dispose();
    expect(() => one.allReduce(y, { out: y })).toThrowError(/out of memory/);
    expect(await failureOf(() => first.data())).toMatchObject({
      failure: "lost",
      operation: "allReduce",
      rank: 1,
    });
  });
});

describe("a tensor of another rank", () => {
  it("is refused without a message to other ranks", async () => {
    const [zero, one] = (await ranks(2)) as [ProcessGroup, ProcessGroup];
    expect(() => zero.allReduce(values(one))).toThrowError(/does not live on the group's backend/);
    const sums = [zero, one].map((group) => group.allReduce(values(group)));
    for (const sum of sums) expect(Array.from(await sum.data())).toEqual([2, 2, 2, 2]);
  });
});
