/** Finds the unquantized inputs that explain differences. */
import { Suspicions } from "../../explain/suspicion.js";
import { hasGivenScale } from "../../formats/block.js";
import { parseJsonObject } from "../../io/json/json-object.js";
import type { TensorSource } from "../../io/source.js";
import { alignBytes, viewAs } from "../../tensor/data.js";
import { asMatrix, elementCount } from "../../tensor/shape.js";
import { wideDType } from "../commands/encode.js";
import { readRandomBits } from "../random-bits.js";
import type { QuantizedPair } from "./quantized-pair.js";

/** The metadata entry in which `fuzz` records its options. */
const FUZZ = "lockstep-fuzz";

/** Options that affect the result besides the metadata of a quantized tensor. */
interface Recorded {
  readonly scale: number;
  readonly seed: bigint;
  readonly offset: bigint;
  /** Whether the random bits of stochastic rounding are in the file. */
  readonly isGiven: boolean;
}

/** Finds the input of a quantized tensor. It has the same name; in a file of `fuzz`, the input of out.N is in.N. */
export class Inputs {
  readonly #recorded: Recorded;

  constructor(
    private readonly file: TensorSource,
    sources: readonly TensorSource[],
  ) {
    this.#recorded = recordedOptions([file, ...sources]);
  }

  /** Returns an explainer of wrong codes for a copy, or undefined if the file lacks its input. */
  async suspicionsOf({ name, recipe, direction }: QuantizedPair): Promise<Suspicions | undefined> {
    const entry = [name, name.replace(/^out\./, "in.")].flatMap((candidate) => {
      const entry = this.file.tensors.get(candidate);
      return entry ? [entry] : [];
    })[0];
    const dtype = entry && wideDType(entry);
    if (!entry || dtype !== recipe.dtype || elementCount(entry.shape) !== elementCount(recipe.shape))
      return undefined;
    const { spec } = recipe;
    const { scale, seed, offset, isGiven } = this.#recorded;
    const bytes = await this.file.read(entry);
    const data = viewAs(dtype, alignBytes(bytes, 4));
    const values = { data, dtype, shape: asMatrix(recipe.shape) };
    const context = {
      direction,
      ...(hasGivenScale(spec) ? { scale } : {}),
      ...(spec.stochastic ? { random: { seed, offset } } : {}),
      ...(spec.stochastic && isGiven
        ? { randomBits: await readRandomBits(this.file, entry.name, direction) }
        : {}),
    };
    return new Suspicions(values, { spec, context });
  }
}

/** The options that `fuzz` recorded in one of the files, or the defaults of the command line. */
function recordedOptions(files: readonly TensorSource[]): Recorded {
  for (const { metadata } of files) {
    const options = parseJsonObject(metadata[FUZZ]);
    if (!options) continue;
    const scale = Number(textOf(options.scale ?? 1));
    return {
      scale: scale > 0 ? Math.fround(scale) : 1,
      seed: u64(options.seed),
      offset: u64(options.offset),
      isGiven: options["random-bits"] === true,
    };
  }
  return { scale: 1, seed: 0n, offset: 0n, isGiven: false };
}

/** Converts a number or a string to a string. Returns "" for other values, whose conversion may throw. */
function textOf(value: unknown): string {
  return typeof value === "string" || typeof value === "number" ? String(value) : "";
}

function u64(value: unknown): bigint {
  const text = textOf(value ?? 0);
  return /^\d{1,20}$/.test(text) ? BigInt.asUintN(64, BigInt(text)) : 0n;
}
