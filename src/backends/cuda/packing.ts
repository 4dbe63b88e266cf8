/** Packs the arguments of a call into the slots of a Float64Array, in the order of its declaration. */
import { WIDE } from "../../formats/contract.gen.js";
import {
  ABSENT,
  type Declaration,
  hasType,
  isMemory,
  isUnpassed,
  type Located,
  type LocatedWide,
  membersOf,
  nameIn,
  slotsOf,
} from "./native-arguments.js";

/** An argument, or a group of arguments. `at` is the index of its slot or, for a group, of the first slot. */
interface Field {
  readonly name: string;
  readonly at: number;
  readonly fields: readonly Field[] | undefined;
  /** Whether the argument is an object with an address, and with a dtype, whose number the next slot takes. */
  readonly isLocated: boolean;
  readonly isWide: boolean;
}

function fieldsOf(declaration: Declaration, first: number): readonly Field[] {
  let at = first;
  const passed = Object.entries(declaration).filter(([, declared]) => !isUnpassed(declared));
  return passed.map(([key, declared]) => {
    const isLocated = isMemory(declared) && declared.access !== "scratch";
    const isWide = isLocated && hasType(declared);
    const members = membersOf(declared);
    const fields = members && fieldsOf(members, at);
    const field = { name: nameIn(key), at, fields, isLocated, isWide };
    at += slotsOf({ [key]: declared }).length;
    return field;
  });
}

type Given = Readonly<Record<string, unknown>>;

/** Returns a function that packs arguments into slots. The array that it returns is valid until its next call. */
export function packing(declaration: Declaration): (args: object) => Float64Array {
  const fields = fieldsOf(declaration, 0);
  const none = new Float64Array(new BigUint64Array(slotsOf(declaration).length).fill(ABSENT).buffer);
  /** One buffer serves all calls: native code reads it before the call returns. */
  const slots = new Float64Array(none.length);
  return (args) => {
    // `set` copies bytes. `fill` would write a number and might not preserve the payload of the NaN.
    slots.set(none);
    pack(slots, fields, args as Given);
    return slots;
  };
}

function pack(slots: Float64Array, fields: readonly Field[], args: Given): void {
  for (const { name, at, fields: group, isLocated, isWide } of fields) {
    const value = args[name];
    if (value === undefined) continue;
    if (group) pack(slots, group, value as Given);
    else if (isLocated) {
      slots[at] = (value as Located).address;
      if (isWide) slots[at + 1] = WIDE[(value as LocatedWide).dtype];
    } else slots[at] = typeof value === "number" ? value : value ? 1 : 0;
  }
}
