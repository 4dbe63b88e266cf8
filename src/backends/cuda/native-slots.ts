/** The slots of a call, one number for each argument that it declares (native-arguments.ts), and the parts of a declaration. */
import type {
  Bounded,
  Condition,
  Declaration,
  Defaulted,
  Group,
  Internal,
  Kind,
  Memory,
} from "./native-arguments.js";

/** The bit pattern of a slot whose argument is absent: a NaN that arithmetic does not produce. */
export const ABSENT = 0x7ff8_6c6f_636b_7374n;

/** One slot. Its name is the path of the argument through groups, with dots, as C++ names it. */
export interface Slot {
  readonly name: string;
  readonly kind: Kind;
  /** Whether the argument, or a group that contains it, is optional. */
  readonly optional: boolean;
}

/** Whether a declared argument is device memory. */
export function isMemory(argument: Declaration[string]): argument is Memory {
  return typeof argument === "object" && "access" in argument && typeof argument.access === "string";
}

/** Whether a declared argument is a count with a range. */
function isBounded(argument: Declaration[string]): argument is Bounded {
  return typeof argument === "object" && "from" in argument && typeof argument.from === "number";
}

/** Whether a declared argument is a number with a default. */
function isDefaulted(argument: Declaration[string]): argument is Defaulted {
  return typeof argument === "object" && "absent" in argument && typeof argument.absent === "string";
}

/** Whether a declared argument is a group that is a struct in C++. */
function isGroup(argument: Declaration[string]): argument is Group {
  return typeof argument === "object" && "struct" in argument && typeof argument.struct === "string";
}

/** Whether a member of a declaration is a field or condition without an argument. */
export function isUnpassed(argument: Declaration[string]): argument is Internal | Condition {
  if (typeof argument !== "object") return false;
  return typeof (argument as Partial<Internal>).internal === "string" || "condition" in argument;
}

/** Returns the arguments in a group; undefined if it is not a group. */
export function membersOf(argument: Declaration[string]): Declaration | undefined {
  if (typeof argument !== "object" || isMemory(argument) || isUnpassed(argument)) return undefined;
  if (isBounded(argument) || isDefaulted(argument)) return undefined;
  return isGroup(argument) ? argument.fields : argument;
}

/** Whether memory has a second slot, which holds its dtype. */
export function hasType({ element, of }: Memory): boolean {
  return element === "wide" && of === undefined;
}

/** Returns the slots of a declaration, in order. Memory of wide elements has a second slot, NAMEType. */
export function slotsOf(declaration: Declaration, prefix = "", isInOptionalGroup = false): readonly Slot[] {
  return Object.entries(declaration).flatMap(([key, argument]): readonly Slot[] => {
    const optional = isInOptionalGroup || key.endsWith("?");
    const name = prefix + nameIn(key);
    if (isMemory(argument)) {
      const address: Slot = { name, kind: "pointer", optional };
      const type: Slot = { name: `${name}Type`, kind: "wide", optional };
      return hasType(argument) ? [address, type] : [address];
    }
    if (isBounded(argument)) return [{ name, kind: "count", optional }];
    if (typeof argument === "string") return [{ name, kind: argument, optional }];
    if (isDefaulted(argument)) return [{ name, kind: argument.kind, optional }];
    return slotsOf(membersOf(argument) ?? {}, `${name}.`, optional);
  });
}

/** Returns the name of an argument without the "?" that marks it as optional. */
export function nameIn(key: string): string {
  return key.endsWith("?") ? key.slice(0, -1) : key;
}
