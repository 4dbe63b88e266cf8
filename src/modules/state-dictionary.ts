/** State dictionaries with the names and shapes of TransformerEngine's modules. */
import { ArgumentError, DTypeError, ShapeError } from "../errors.js";
import { castTo } from "../ops/cast/cast.js";
import { describe, entriesOfMap } from "../options.js";
import { requireWide } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import { type Shape, sameShape, type WideDType } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";
import { snakeCase } from "../text/snake-case.js";
import { Module } from "./module.js";
import { MultiheadAttention, type RowSplit } from "./multihead-attention.js";
import { allocateParameters, type Parameter } from "./parameter.js";

/** An entry of a state dictionary: some rows of a parameter. */
interface Entry {
  readonly tensor: Tensor<WideDType>;
  readonly shape: Shape;
  /** The index of the first element in the parameter. */
  readonly start: number;
}

/**
 * Returns copies of the parameters of a module and its submodules under TransformerEngine's names: `selfAttention.layernormQkv.
 * layerNormWeight` is `self_attention.layernorm_qkv.layer_norm_weight`. A `MultiheadAttention` without `fuseQkvParams` has
 * `query_weight`, `key_weight` and `value_weight` in place of one weight, and the same for biases. The copies belong to the
 * current scope.
 *
 * @throws `ArgumentError` for an argument that is not a module, `DTypeError` for a quantized parameter, `DisposedError` for a
 * disposed module.
 */
export function stateDictionary(module: Module): Map<string, Tensor<WideDType>> {
  const entries = createEntries("stateDictionary", module);
  return new Map([...entries].map(([name, { tensor, shape, start }]) => [name, tensor.slice(start, shape)]));
}

/**
 * Overwrites the parameters of a module with the tensors of a state dictionary, rounded to the dtype of each parameter. Names are
 * as in `stateDictionary`. Entries whose names end with `_extra_state`, which hold scales, are not read.
 *
 * @throws `ArgumentError` for an argument that is not a module or a Map, a missing or an unknown name, or tensors on another
 * backend, `ShapeError` for a tensor of another shape, `DTypeError` for a tensor that is not f32, bf16 or f16 and for a quantized
 * parameter, `DisposedError` for a disposed tensor. In each case nothing has changed.
 */
export function loadStateDictionary(module: Module, state: ReadonlyMap<string, Tensor>): void {
  const entries = createEntries("loadStateDictionary", module);
  const pairs = entriesOfMap(state) as [string, Tensor][] | undefined;
  if (!pairs)
    throw new ArgumentError(
      `loadStateDictionary: state is ${describe(state)}; it must be a Map from names to tensors`,
    );
  const tensors = new Map(pairs.filter(([name]) => !String(name).endsWith("_extra_state")));
  const missing = [...entries.keys()].filter((name) => !tensors.has(name));
  const unknown = [...tensors.keys()].filter((name) => !entries.has(name));
  if (missing.length > 0 || unknown.length > 0)
    throw new ArgumentError(
      `loadStateDictionary: state lacks ${formatList(missing)} and has ${formatList(unknown)}, which the module has not; give the names of stateDictionary(module)`,
    );
  using _scope = new Scope();
  const sources = [...entries].map(([name, entry]) => {
    const source = requireWide("loadStateDictionary", name, tensors.get(name));
    if (!sameShape(source.shape, entry.shape))
      throw new ShapeError(`loadStateDictionary: ${name} is [${source.shape}]; it must be [${entry.shape}]`);
    if (source.backend !== entry.tensor.backend)
      throw new ArgumentError(
        `loadStateDictionary: ${name} is on another backend than the module; move it by data() and tensor()`,
      );
    return [source, entry] as const;
  });
  allocateParameters(module.parameters());
  for (const [source, { tensor, start }] of sources) tensor.paste(castTo(source, tensor.dtype), start);
}

function formatList(names: readonly string[]): string {
  return names.length === 0 ? "nothing" : names.slice(0, 4).join(", ");
}

function createEntries(caller: string, module: Module): Map<string, Entry> {
  if (!((module as unknown) instanceof Module))
    throw new ArgumentError(`${caller}: module is ${describe(module)}; it must be a Module`);
  const splits = collectSplits(module);
  const entries = new Map<string, Entry>();
  for (const [name, parameter] of module.namedParameters()) {
    const tensor = parameterTensor(caller, name, parameter);
    const dot = name.lastIndexOf(".");
    const [path, parameterName] = [name.slice(0, Math.max(dot, 0)), name.slice(dot + 1)];
    const rowSplit = splits.get(path);
    const isSplit = rowSplit !== undefined && (parameterName === "weight" || parameterName === "bias");
    const rowSize = tensor.size / (tensor.shape[0] ?? 1);
    let row = 0;
    for (const [prefix, rows] of isSplit ? rowSplit : [["", tensor.shape[0] as number] as const]) {
      const last = prefix ? `${prefix}_${parameterName}` : snakeCase(parameterName);
      const fullName = path ? `${snakeCase(path)}.${last}` : last;
      entries.set(fullName, { tensor, shape: [rows, ...tensor.shape.slice(1)], start: row * rowSize });
      row += rows;
    }
  }
  return entries;
}

/** How the rows of projections are divided, by the paths of their layers. */
function collectSplits(module: Module): ReadonlyMap<string, RowSplit> {
  const splits = new Map<string, RowSplit>();
  for (const [path, each] of module.namedModules())
    if (each instanceof MultiheadAttention)
      for (const [layer, rowSplit] of each.splitRows) splits.set(path ? `${path}.${layer}` : layer, rowSplit);
  return splits;
}

function parameterTensor(caller: string, name: string, parameter: Parameter): Tensor<WideDType> {
  const { localValue } = parameter;
  if (localValue instanceof Tensor)
    return localValue.isMeta ? (localValue as Tensor<WideDType>) : requireWide(caller, name, localValue);
  throw new DTypeError(`${caller}: ${name} is quantized; save it by saveCheckpoint of lockstep/io`);
}
