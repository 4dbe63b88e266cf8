/** Writes safetensors files. */
import {
  anyListOf,
  anything,
  callable,
  fieldsOf,
  integer,
  needed,
  type OptionTable,
  oneOf,
  optionsOf,
  text,
} from "../options.js";
import { Coverage } from "./coverage/coverage.js";
import { FILE_DTYPES } from "./dtypes.js";
import { requirePath, writeAt } from "./files.js";
import type { Metadata, PutTensor, TensorPlan } from "./header/header.js";
import { encodeHeader, planEntries } from "./header/header-write.js";
import { requireMetadata } from "./metadata.js";
import { replaceFile } from "./replace/replace.js";

/** The contents of a file. */
export interface FilePlan {
  /** The names, types and shapes of tensors. Names are unique. The offsets follow from the types. */
  readonly tensors: readonly TensorPlan[];
  /** The metadata. Default: none. */
  readonly metadata?: Metadata | undefined;
}

const checkPlan = optionsOf<FilePlan>(
  { tensors: needed(anyListOf(plannedTensor)), metadata: anything },
  "plan",
);
const TENSOR_PLAN: OptionTable<TensorPlan> = {
  name: needed(text),
  dtype: needed(oneOf(Object.keys(FILE_DTYPES))),
  shape: needed(anyListOf(integer(0))),
};
const checkTensor = optionsOf(TENSOR_PLAN);

/** Returns a copy of the fields of a planned tensor. Other fields are allowed, so that entries of a file can be planned. */
function plannedTensor(caller: string, name: string, value: unknown): TensorPlan {
  const isObject = typeof value === "object" && value !== null;
  return checkTensor(
    caller,
    isObject ? fieldsOf(caller, value as TensorPlan, TENSOR_PLAN) : (value as TensorPlan),
    name,
  );
}

/**
 * Writes a safetensors file; `body` writes every byte of every planned tensor. The file appears at `path` after all
 * bytes are on the disk. It does not appear if `body` throws, omits bytes or writes some twice. Links are followed, and
 * a replaced file keeps its permissions. Throws `ArgumentError` for an invalid plan, `FileError` for a file that
 * readers would refuse and for errors of the operating system.
 */
export async function writeSafetensors(
  path: string,
  plan: FilePlan,
  body: (put: PutTensor) => Promise<void>,
): Promise<void> {
  requirePath("writeSafetensors", path);
  const { tensors: plans, metadata = {} } = checkPlan("writeSafetensors", plan);
  requireMetadata("writeSafetensors", metadata);
  callable("writeSafetensors", "body", body);
  const tensors = planEntries(path, plans);
  const header = encodeHeader(path, tensors.values(), metadata);
  await replaceFile(path, async (handle) => {
    const coverage = new Coverage(path, tensors);
    await writeAt(path, handle, header, 0);
    await body(async (name, bytes, offset = 0) => {
      const { begin } = coverage.add(name, bytes, offset);
      await writeAt(path, handle, bytes, header.length + begin + offset);
    });
    coverage.requireComplete();
  });
}
