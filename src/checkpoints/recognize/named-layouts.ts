/** Recognizes unsupported layouts of other libraries. Each weight gives one finding for all its tensors. */
import type { TensorEntry } from "../../io/header/header.js";
import { type Finding, finding } from "../judge/findings.js";
import { subclassOf } from "../stored/config/torchao.js";
import type { CheckpointTensors } from "../stored/tensors.js";

/** A layout: the suffix of its codes, the suffixes that must also exist, and patterns of all its suffixes. */
interface Layout {
  readonly codes: string;
  readonly companions: readonly string[];
  readonly parts: readonly RegExp[];
  /** The name of the layout, by the tensors of a module. */
  readonly name: (entries: ReadonlyMap<string, TensorEntry>) => string;
}

const LAYOUTS: readonly Layout[] = [
  {
    codes: ".qweight",
    companions: [".scales"],
    parts: [/^\.(qweight|qzeros|scales|g_idx)$/],
    name: nameOfWords,
  },
  {
    codes: ".weight",
    companions: [".weight.absmax"],
    parts: [/^\.weight(\.(absmax|quant_map|nested_absmax|nested_quant_map|quant_state\..*))?$/],
    name: (entries) => {
      const state = [...entries.keys()].find((each) => each.startsWith(".weight.quant_state."));
      const kind = state?.replace(/^.*__/, "").toUpperCase();
      return kind === "NF4" || kind === "FP4" ? `bitsandbytes ${kind}` : "bitsandbytes, 4 bits";
    },
  },
  {
    codes: ".weight",
    companions: [".SCB"],
    parts: [/^\.(weight|SCB|weight_format)$/],
    name: () => "bitsandbytes LLM.int8()",
  },
  {
    codes: ".weight",
    companions: [".scales", ".biases"],
    parts: [/^\.(weight|scales|biases)$/],
    name: () => "MLX affine",
  },
];

/** The number of codes that AWQ packs in a word. */
const AWQ_CODES = 8;

/**
 * The layout of a weight [N, K] that is packed in 32-bit words, determined from the shapes of its words and its scales. GPTQ
 * packs along K: words [K / codes per word, N] and scales [K / group, N]. AWQ packs along N: words [K, N / 8]. AWQ's layout for
 * GEMV packs each row along K: words [N, K / 8] and scales [N, K / group].
 */
function nameOfWords(entries: ReadonlyMap<string, TensorEntry>): string {
  const [lines, wordColumns] = entries.get(".qweight")?.shape ?? [];
  const [rows, columns] = entries.get(".scales")?.shape ?? [];
  if (lines === undefined || wordColumns === undefined || columns === undefined) return "GPTQ or AWQ";
  if (entries.has(".g_idx") || wordColumns === columns) return "GPTQ";
  if (wordColumns * AWQ_CODES === columns) return "AWQ";
  return lines === rows ? "AWQ, for GEMV" : "GPTQ or AWQ";
}

/** The supported subclasses of torchao. */
const TORCHAO_READ = ["Float8Tensor", "MXTensor", "NVFP4Tensor", "Int8Tensor", "torch.Tensor", "Tensor"];
const QDATA = "._weight_qdata";

/** Findings about weights in unsupported layouts. Adds the names of their tensors to `claimedNames`. */
export function namedLayouts(checkpoint: CheckpointTensors, claimedNames: Set<string>): Finding[] {
  if (checkpoint.container !== undefined) return [];
  const modules = modulesOf(checkpoint, claimedNames);
  const findings: Finding[] = [];
  for (const [module, entries] of modules) {
    const report = (entry: TensorEntry, name: string): void => {
      const problem = `${entry.dtype} [${entry.shape}] is ${name}, which is not read`;
      findings.push(finding("codes-unrecognized", entry.name, problem));
    };
    const layout = LAYOUTS.find(
      ({ codes, companions }) => entries.has(codes) && companions.every((each) => entries.has(each)),
    );
    if (layout) {
      report(entries.get(layout.codes) as TensorEntry, layout.name(entries));
      for (const [end, { name }] of entries)
        if (layout.parts.some((part) => part.test(end))) claimedNames.add(name);
      continue;
    }
    const codes = entries.get(QDATA);
    const { type } = subclassOf(checkpoint.metadata, `${module}.weight`);
    if (!codes || type === undefined || TORCHAO_READ.includes(type)) continue;
    report(codes, `torchao ${type}`);
    for (const [end, { name }] of entries) if (end.startsWith("._weight_")) claimedNames.add(name);
  }
  return findings;
}

/** The suffix of a tensor in its module: the part after the last dot, or everything from ".weight." on. */
const END = /(\.weight\..*|\.[^.]+)$/s;

/** The tensors that are not in `claimedNames`, by module and suffix. */
function modulesOf(
  { tensors }: CheckpointTensors,
  claimedNames: ReadonlySet<string>,
): Map<string, Map<string, TensorEntry>> {
  const modules = new Map<string, Map<string, TensorEntry>>();
  for (const [name, { entry }] of tensors) {
    const end = claimedNames.has(name) ? undefined : END.exec(name)?.[0];
    if (end === undefined) continue;
    const module = name.slice(0, name.length - end.length);
    const entries = modules.get(module) ?? new Map<string, TensorEntry>();
    entries.set(end, entry);
    modules.set(module, entries);
  }
  return modules;
}
