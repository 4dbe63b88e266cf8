/** Converts checkpoints. */
import type { Backend } from "../../backends/backend.js";
import { openBackend } from "../../backends/open.js";
import { ArgumentError } from "../../errors.js";
import { needed, optionsOf } from "../../options.js";
import type { ConversionMethod, WeightChanges } from "../convert/changes/weight-changes.js";
import { requireFree } from "../convert/output-folder.js";
import { planConversion } from "../convert/plan/plan.js";
import type { ConversionPlan } from "../convert/plan/steps.js";
import { type ConversionTarget, parseTarget } from "../convert/targets/named.js";
import { writeConversion } from "../convert/write.js";
import { withCheckpointFiles } from "./open.js";
import {
  DOMAINS,
  type OpenCheckpointOptions,
  parsedBy,
  progressOf,
  requireCheckpointPath,
  type TransferProgress,
} from "./options.js";

/** Options of `convertCheckpoint`. */
export interface ConvertCheckpointOptions extends OpenCheckpointOptions {
  /**
   * The form to which weights are converted: a wide type, the form of another library, or the form of a quantizer of this
   * library.
   */
  readonly to: ConversionTarget;
  /**
   * Names of the weights to convert; `*` stands for any characters, `?` for one character. The other weights are copied. Default:
   * all quantized weights or, in a checkpoint without quantized weights, the weights of linear layers.
   */
  readonly tensors?: readonly string[] | undefined;
  /** Whether an existing output may be written over, file by file. Default: false. */
  readonly force?: boolean | undefined;
  /** Whether to plan and check the conversion without writing anything. Default: false. */
  readonly dryRun?: boolean | undefined;
  /**
   * Opens the backend that quantizes. It is called at the first weight that needs a backend; the caller disposes of the result.
   * Default: the reference.
   */
  readonly openBackend?: (() => Promise<Backend>) | undefined;
  /** Called before the first bytes are written, and after each write. */
  readonly onProgress?: ((progress: TransferProgress) => void) | undefined;
}

/** A planned or finished conversion. */
export interface ConversionReport {
  /** The folder of the output. */
  readonly output: string;
  /** The form of the converted weights. */
  readonly to: ConversionTarget;
  /** The conversion method of each converted weight, by name. */
  readonly methods: Readonly<Record<string, ConversionMethod>>;
  /** The names of the quantized weights that are copied. */
  readonly kept: readonly string[];
  /** The weights of linear layers that are copied although no option excludes them, and the reasons, by name. */
  readonly skipped: Readonly<Record<string, string>>;
  /** The names of tensors of converted weights that the output does not need, such as scales of activations. */
  readonly dropped: readonly string[];
  /** The files of the output, and the number of weights and copied tensors in each. */
  readonly shards: readonly { readonly name: string; readonly tensors: number }[];
  /** The bytes of all tensors of the output. */
  readonly bytes: number;
  /** Whether the output was written. */
  readonly written: boolean;
  /** The changes of each weight; empty if nothing was written. */
  readonly changes: readonly WeightChanges[];
}

const checkConvert = optionsOf<ConvertCheckpointOptions>({
  to: needed(parsedBy(parseTarget)),
  as: DOMAINS.as,
  tensors: DOMAINS.tensors,
  force: DOMAINS.flag,
  dryRun: DOMAINS.flag,
  openBackend: DOMAINS.callable,
  onProgress: DOMAINS.callable,
});

/**
 * Writes the weights of a checkpoint in another form, with the configuration that loaders need and the other files of its folder.
 * Codes and scales are repacked without rounding where the form can hold them; other weights are dequantized or quantized from
 * their exact values. Input and output are verified. The output appears when it is complete; the same call continues an
 * interrupted conversion.
 *
 * @throws `FileError` if the checkpoint has an error, a weight cannot have the form, values would become NaN or infinite, or a
 * file cannot be read or written; `ArgumentError` for invalid paths and options, for a pattern of `tensors` that matches no
 * weight, and for an output that exists without `force`; `BackendError` if the host does not allow WebAssembly.
 */
export async function convertCheckpoint(
  path: string,
  output: string,
  options: ConvertCheckpointOptions,
): Promise<ConversionReport> {
  const caller = "convertCheckpoint";
  requireCheckpointPath(caller, "path", path);
  requireCheckpointPath(caller, "output", output);
  const {
    to,
    as,
    tensors,
    force = false,
    dryRun = false,
    onProgress,
    ...openOptions
  } = checkConvert(caller, options);
  await requireFree(output, force);
  const backend = backendOf(openOptions.openBackend);
  try {
    return await withCheckpointFiles(path, async (files) => {
      const target = parseTarget(to);
      const plan = await planConversion(files, { target, tensors, as, backend: backend.open });
      if (files.shards.length === 0) throw new ArgumentError(`${path}: has no shard that can be read`);
      const report = reportOf(output, to, plan);
      if (dryRun) {
        await plan.requireSoundInput();
        return { ...report, written: false, changes: [] };
      }
      const onBytes = progressOf(plan.bytes, onProgress);
      const changes = await writeConversion(files, plan, output, onBytes);
      return { ...report, written: true, changes };
    });
  } finally {
    await backend.dispose();
  }
}

/** Opens the backend at most once. Disposes of the backend only if the caller did not open it. */
function backendOf(openGiven: (() => Promise<Backend>) | undefined): {
  readonly open: () => Promise<Backend>;
  readonly dispose: () => Promise<void>;
} {
  let backendPromise: Promise<Backend> | undefined;
  const open = (): Promise<Backend> => {
    backendPromise ??= openGiven ? openGiven() : openBackend("wasm");
    return backendPromise;
  };
  return { open, dispose: async () => void (openGiven || (await (await backendPromise)?.dispose())) };
}

function reportOf(
  output: string,
  to: ConversionTarget,
  { converted, kept, skipped, dropped, shards, bytes }: ConversionPlan,
): Omit<ConversionReport, "written" | "changes"> {
  return {
    output,
    to,
    methods: Object.fromEntries(converted),
    kept,
    skipped: Object.fromEntries(skipped),
    dropped,
    shards: shards.map(({ name, steps }) => ({ name, tensors: steps.length })),
    bytes,
  };
}
