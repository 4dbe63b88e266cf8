/** Layouts that are known by name and not read: each is one finding, whatever tensors it has. */
import type { TensorEntry } from "../../io/header/header.js";
import { type Finding, finding } from "../judge/findings.js";
import { subclassOf } from "../stored/config/torchao.js";
import type { CheckpointTensors } from "../stored/tensors.js";

/** A layout: the end of the name of its codes, what must be beside, and all ends of names of its tensors. */
interface Layout {
  readonly codes: string;
  readonly beside: readonly string[];
  readonly parts: readonly RegExp[];
  /** Its name, by the tensors of a module. */
  readonly name: (entries: ReadonlyMap<string, TensorEntry>) => string;
}

const LAYOUTS: readonly Layout[] = [
  {
    codes: ".qweight",
    beside: [".qzeros"],
    parts: [/^\.(qweight|qzeros|scales|g_idx)$/],
    // AWQ packs columns of [K, N], GPTQ rows
    name: (entries) => {
      const [codes, zeros] = [entries.get(".qweight"), entries.get(".qzeros")];
      return codes?.shape.at(-1) === zeros?.shape.at(-1) ? "AWQ" : "GPTQ";
    },
  },
  {
    codes: ".weight",
    beside: [".weight.absmax"],
    parts: [/^\.weight(\.(absmax|quant_map|nested_absmax|nested_quant_map|quant_state\..*))?$/],
    name: (entries) => {
      const state = [...entries.keys()].find((each) => each.startsWith(".weight.quant_state."));
      const kind = state?.replace(/^.*__/, "").toUpperCase();
      return kind === "NF4" || kind === "FP4" ? `bitsandbytes ${kind}` : "bitsandbytes, 4 bits";
    },
  },
  {
    codes: ".weight",
    beside: [".SCB"],
    parts: [/^\.(weight|SCB|weight_format)$/],
    name: () => "bitsandbytes LLM.int8()",
  },
  {
    codes: ".weight",
    beside: [".scales", ".biases"],
    parts: [/^\.(weight|scales|biases)$/],
    name: () => "MLX affine",
  },
];

/** The subclasses of torchao that are not read. */
const TORCHAO_READ = ["Float8Tensor", "MXTensor", "NVFP4Tensor", "Int8Tensor", "torch.Tensor", "Tensor"];
const QDATA = "._weight_qdata";

/** Findings about weights of such layouts. Adds the names of their tensors to `taken`. */
export function namedLayouts(checkpoint: CheckpointTensors, taken: Set<string>): Finding[] {
  if (checkpoint.container !== undefined) return [];
  const modules = modulesOf(checkpoint, taken);
  const findings: Finding[] = [];
  for (const [module, entries] of modules) {
    const say = (entry: TensorEntry, name: string): void => {
      const what = `${entry.dtype} [${entry.shape}] is ${name}, which is not read`;
      findings.push(finding("codes-unrecognized", entry.name, what));
    };
    const layout = LAYOUTS.find(
      ({ codes, beside }) => entries.has(codes) && beside.every((each) => entries.has(each)),
    );
    if (layout) {
      say(entries.get(layout.codes) as TensorEntry, layout.name(entries));
      for (const [end, { name }] of entries) if (layout.parts.some((part) => part.test(end))) taken.add(name);
      continue;
    }
    const codes = entries.get(QDATA);
    const { type } = subclassOf(checkpoint.metadata, `${module}.weight`);
    if (!codes || type === undefined || TORCHAO_READ.includes(type)) continue;
    say(codes, `torchao ${type}`);
    for (const [end, { name }] of entries) if (end.startsWith("._weight_")) taken.add(name);
  }
  return findings;
}

/** Ends of names that a module's tensors may have: the last part, and what follows a weight's name. */
const END = /(\.weight\..*|\.[^.]+)$/s;

/** The tensors that are not taken, by module and end of name. */
function modulesOf(
  { tensors }: CheckpointTensors,
  taken: ReadonlySet<string>,
): Map<string, Map<string, TensorEntry>> {
  const modules = new Map<string, Map<string, TensorEntry>>();
  for (const [name, { entry }] of tensors) {
    const end = taken.has(name) ? undefined : END.exec(name)?.[0];
    if (end === undefined) continue;
    const module = name.slice(0, name.length - end.length);
    const entries = modules.get(module) ?? new Map<string, TensorEntry>();
    entries.set(end, entry);
    modules.set(module, entries);
  }
  return modules;
}
