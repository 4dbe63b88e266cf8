/**
 * Calls of the addon and of the reference's exports by named arguments: each argument arrives in its slot. The compiler
 * refuses invalid calls (named-arguments-arrive-in-their-slots.types.ts).
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CALLS, type NamedArguments } from "#reference";
import type { Declaration, Memory } from "../../../src/backends/cuda/native-arguments.js";
import { NATIVE_CALLS, type NativeCall } from "../../../src/backends/cuda/native-calls.js";
import {
  ABSENT,
  hasType,
  isMemory,
  isUnpassed,
  membersOf,
  nameIn,
  slotsOf,
} from "../../../src/backends/cuda/native-slots.js";
import { WRITERS } from "../../../src/backends/cuda/packing.gen.js";
import { Slots } from "../../../src/backends/cuda/slots.js";
import { taskMemory } from "../../../src/backends/wasm/call.js";
import type { ExportName } from "../../../src/backends/wasm/instance.js";
import { WIDE } from "../../../src/formats/contract.gen.js";
import { draws } from "../harness/draws.js";
import { type Field, referenceExports } from "../harness/sources/assembly.js";
import { listFiles, ROOT } from "../harness/sources/sources.js";

const EXPORTS = referenceExports();

/** Reads a field of a task, by the type that its class gives it. */
const READ: Readonly<Record<string, (view: DataView, offset: number) => number | boolean>> = {
  bool: (view, offset) => view.getUint8(offset) !== 0,
  f32: (view, offset) => view.getFloat32(offset, true),
  f64: (view, offset) => view.getFloat64(offset, true),
  i32: (view, offset) => view.getInt32(offset, true),
  u32: (view, offset) => view.getUint32(offset, true),
  usize: (view, offset) => view.getUint32(offset, true),
};

/** The arguments that are fields. */
const pickFields = (args: NamedArguments, fields: readonly Field[]): NamedArguments =>
  Object.fromEntries(fields.map(({ name }) => [name, args[name] as NamedArguments]));

const bitsOf = (slots: Float64Array): BigUint64Array => new BigUint64Array(slots.slice().buffer);

type SlotValues = ReadonlyMap<string, number>;

/** A tensor for an argument, or an address for a workspace, and the slots that result. */
function drawnMemory(name: string, memory: Memory): fc.Arbitrary<readonly [unknown, SlotValues]> {
  if (memory.access === "scratch") return fc.double().map((address) => [address, new Map([[name, address]])]);
  return fc
    .record({ address: fc.double(), dtype: fc.constantFrom("f32" as const, "bf16" as const, "f16" as const) })
    .map((tensor) => {
      const type: readonly [string, number][] = hasType(memory) ? [[`${name}Type`, WIDE[tensor.dtype]]] : [];
      return [tensor, new Map([[name, tensor.address], ...type])];
    });
}

/** A value for each argument, optional arguments and groups present or absent, and the slots that result. */
function drawArguments(declaration: Declaration, prefix = ""): fc.Arbitrary<readonly [object, SlotValues]> {
  const passedFields = Object.entries(declaration).filter(([, field]) => !isUnpassed(field));
  const fieldArbitraries = passedFields.map(([key, field]) => {
    const name = nameIn(key);
    const members = membersOf(field);
    const valueAndSlots: fc.Arbitrary<readonly [unknown, SlotValues]> = isMemory(field)
      ? drawnMemory(prefix + name, field)
      : members
        ? drawArguments(members, `${prefix}${name}.`)
        : field === "flag"
          ? fc.boolean().map((flag) => [flag, new Map([[prefix + name, Number(flag)]])] as const)
          : fc.double().map((value) => [value, new Map([[prefix + name, value]])] as const);
    return fc
      .tuple(fc.boolean(), valueAndSlots)
      .map(([isOmitted, [value, slots]]) =>
        key.endsWith("?") && isOmitted
          ? ([name, undefined, new Map<string, number>()] as const)
          : ([name, value, slots] as const),
      );
  });
  return fc.tuple(...fieldArbitraries).map((entries) => {
    const values = Object.fromEntries(entries.map(([name, value]) => [name, value]));
    return [values, new Map(entries.flatMap(([, , slots]) => [...slots]))] as const;
  });
}

describe("a call of the addon", () => {
  const calls = Object.entries<Declaration>(NATIVE_CALLS);

  it.each(calls)(
    "%s passes each argument at its position, and marks each that is not given as absent",
    (name, declaration) => {
      const write = WRITERS[name as NativeCall] as (slots: Slots, args: object) => void;
      const slots = new Slots(declaration);
      const declaredSlots = slotsOf(declaration);
      expect(new Set(declaredSlots.map(({ name }) => name)).size).toBe(declaredSlots.length);
      fc.assert(
        fc.property(drawArguments(declaration), ([args, values]) => {
          const expected = new Float64Array(new BigUint64Array(declaredSlots.length).fill(ABSENT).buffer);
          for (const [slot, { name }] of declaredSlots.entries()) {
            const value = values.get(name);
            if (value !== undefined) expected[slot] = value;
          }
          write(slots, args);
          expect(bitsOf(slots.numbers)).toEqual(bitsOf(expected));
        }),
        { numRuns: draws(30) },
      );
    },
  );
});

describe("a call of an export", () => {
  it("has a test for every export", () => {
    expect(Object.keys(CALLS).sort()).toEqual(EXPORTS.map(({ name }) => name).sort());
  });

  it.each(EXPORTS)(
    "$name passes each argument at its position, and each field of its task at the offset that its class gives it",
    ({ name, task, parameters }) => {
      const buffer = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
      const memory = taskMemory(buffer, 64);
      const call = CALLS[name as ExportName];
      let next = 100;
      const valuesOf = (fields: readonly Field[]): NamedArguments =>
        Object.fromEntries(
          fields
            .map(({ name: field, type, record }): readonly [string, NamedArguments[string]] => {
              if (record) return [field, valuesOf(record)];
              return [field, type === "bool" ? next++ % 2 === 0 : next++];
            })
            .reverse(),
        );
      const args = { ...valuesOf(parameters), ...valuesOf(task ?? []) };
      call.write(memory, args);
      const view = new DataView(buffer.buffer);
      const readFields = (address: number, fields: readonly Field[]): NamedArguments =>
        Object.fromEntries(
          fields.map(({ name: field, type, offset, record }) => {
            const fieldAddress = address + offset;
            return [
              field,
              record
                ? readFields(view.getUint32(fieldAddress, true), record)
                : READ[type]!(view, fieldAddress),
            ];
          }),
        );
      if (task) expect(readFields(memory.address, task)).toEqual(pickFields(args, task));
      const ofThePart: Readonly<Record<string, number>> = { scratch: 1, begin: 2, end: 3 };
      expect(call.order(memory, args, 1, 2, 3)).toEqual([
        ...(task ? [memory.address] : []),
        ...parameters.map((parameter) => ofThePart[parameter.name] ?? args[parameter.name]),
      ]);
    },
  );
});

describe("the object literals that calls pass", () => {
  /** Matches a call whose argument literal starts with a spread, up to the spread. Such calls are slow. */
  const SLOW = /\b(?:addon\.\w+\(device|pool\.(?:run|call)\()[^;]*?\{\s*\.\.\.\w+/g;
  const slowIn = (text: string): readonly string[] => text.match(SLOW) ?? [];

  it("start with a field: V8 takes microseconds for one that starts with a spread", () => {
    expect(slowIn("addon.add(device, { ...sum, count });")).toHaveLength(1);
    expect(slowIn('pool.run("add", job, {\n  ...sum,\n});')).toHaveLength(1);
    expect(slowIn("addon.norm(device, { x, rowwise: { ...copy } });")).toHaveLength(1);
    expect(slowIn("addon.add(device, { count, ...sum }); const y = { ...x };")).toEqual([]);
    const files = listFiles("src/backends").filter((file) => file.endsWith(".ts"));
    const slowCalls = files.flatMap((file) => slowIn(readFileSync(join(ROOT, file), "utf8")));
    expect(slowCalls).toEqual([]);
  });
});
