/**
 * The witness of a backend: it recomputes sampled elements of live operations on the reference, and reports those whose bits
 * differ. Such elements come from a defect of the hardware, of a library or of a kernel.
 */
import { BackendError, messageOf } from "../../errors.js";
import { memoryOf } from "../../tensor/memory.js";
import { isTensor } from "../../tensor/tensor.js";
import { type Backend, requireBackend } from "../backend.js";
import type { OpArgs, OpName } from "../ops.js";
import { interceptRun } from "../run.js";
import { writesNothing } from "../writes.js";
import type {
  OnMismatch,
  Witness,
  WitnessCount,
  WitnessFinding,
  WitnessOptions,
  WitnessReport,
} from "./options.js";
import { chooser, type Sample } from "./sample.js";
import { SAMPLERS } from "./samplers.js";

/** The maximum number of findings that are kept. */
const MAX_FINDINGS = 1000;

/** The mutable form of `WitnessCount`. */
interface Count {
  calls: number;
  compared: number;
  elements: number;
  skipped: Record<string, number>;
}

/** The witness of one backend. */
export class OperationWitness implements Witness {
  readonly #reference: Backend;
  readonly #elements: number;
  readonly #every: number;
  readonly #onMismatch: OnMismatch;
  readonly #seed: bigint;
  readonly #counts = new Map<OpName, Count>();
  readonly #findings: WitnessFinding[] = [];
  readonly #pending = new Set<Promise<void>>();
  /** The first finding that was not thrown yet, or the error of a comparison. */
  #failure: Error | undefined;

  constructor(reference: Backend, options: WitnessOptions) {
    const { elements = 10_000, every = 16, onMismatch = "throw", seed = 0n } = options;
    this.#reference = reference;
    this.#elements = elements;
    this.#every = every;
    this.#onMismatch = onMismatch;
    this.#seed = seed;
  }

  async settled(): Promise<void> {
    while (this.#pending.size > 0) await Promise.all(this.#pending);
    this.#throwFailure();
  }

  report(): WitnessReport {
    const operations: Partial<Record<OpName, WitnessCount>> = {};
    for (const [op, count] of this.#counts) operations[op] = { ...count, skipped: { ...count.skipped } };
    return { seed: this.#seed, operations, findings: [...this.#findings] };
  }

  /** Runs an operation of the backend by `run`, and compares it if it is chosen. */
  watch<K extends OpName>(backend: Backend, run: Run, op: K, args: OpArgs[K]): void {
    this.#throwFailure();
    const count = this.#countOf(op);
    const call = count.calls++;
    if (call % this.#every !== 0) {
      run(op, args);
      return;
    }
    const sample = this.#begin({ backend, run, op, args, call });
    run(op, args);
    if (typeof sample === "string") count.skipped[sample] = (count.skipped[sample] ?? 0) + 1;
    else this.#compare(sample, { op, args, call, count });
  }

  #countOf(op: OpName): Count {
    const existing = this.#counts.get(op);
    if (existing) return existing;
    const count: Count = { calls: 0, compared: 0, elements: 0, skipped: {} };
    this.#counts.set(op, count);
    return count;
  }

  /** Begins to sample a call. Returns the reason if it is not sampled. */
  #begin<K extends OpName>({ backend, run, op, args, call }: Call<K>): Sample | string {
    const sampler = SAMPLERS[op];
    if (!sampler) return "the witness has no rule for this operation";
    if (writesNothing(op, args)) return "its results are empty";
    if (memoryOf(backend).used) return "a graph is captured";
    if (backend.isAside) return "it runs on the side stream";
    const support = backend.supports(op, args);
    if (!support.ok) return support.reason;
    if (support.agrees !== "bits") return support.agrees.approximate;
    const choose = chooser(this.#seed, call);
    return sampler({ backend, run, args, elements: this.#elements, choose });
  }

  #compare<K extends OpName>(sample: Sample, { op, args, call, count }: SampledOperation<K>): void {
    const tensors = describeTensors(args);
    const pending = sample
      .results()
      .then((compare) => {
        const { elements, differing, differences } = compare(this.#reference);
        count.compared++;
        count.elements += elements;
        if (differing > 0) this.#add({ operation: op, call, tensors, elements, differing, differences });
      })
      .catch((cause: unknown) => {
        this.#failure ??= new BackendError(`witness: a call of ${op} was not compared: ${messageOf(cause)}`, {
          cause,
        });
      })
      .finally(() => this.#pending.delete(pending));
    this.#pending.add(pending);
  }

  #add(finding: WitnessFinding): void {
    if (this.#findings.length < MAX_FINDINGS) this.#findings.push(finding);
    if (typeof this.#onMismatch === "function") this.#onMismatch(finding);
    else if (this.#onMismatch === "throw") this.#failure ??= new BackendError(sentence(finding));
  }

  #throwFailure(): void {
    const failure = this.#failure;
    this.#failure = undefined;
    if (failure) throw failure;
  }
}

type Run = <K extends OpName>(op: K, args: OpArgs[K]) => void;

interface Call<K extends OpName> {
  readonly backend: Backend;
  readonly run: Run;
  readonly op: K;
  readonly args: OpArgs[K];
  readonly call: number;
}

interface SampledOperation<K extends OpName> extends Pick<Call<K>, "op" | "args" | "call"> {
  readonly count: Count;
}

function sentence({ operation, call, elements, differing, differences }: WitnessFinding): string {
  const [first] = differences;
  const example = first
    ? `; ${first.result}[${first.index.join(", ")}] is 0x${first.actual}, the reference gives 0x${first.expected}`
    : "";
  return `witness: call ${call} of ${operation} differs from the reference in ${differing} of ${elements} elements${example}`;
}

/** The dtypes and shapes of the tensors of a call, by argument. */
function describeTensors(args: object): Readonly<Record<string, string>> {
  const tensors: Record<string, string> = {};
  const add = (name: string, value: unknown): void => {
    if (isTensor(value)) tensors[name] = `${value.dtype} [${value.shape.join(", ")}]`;
    else if (typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype)
      for (const [key, each] of Object.entries(value)) add(`${name}.${key}`, each);
  };
  for (const [key, value] of Object.entries(args)) add(key, value);
  return tensors;
}

const witnesses = new WeakMap<Backend, OperationWitness>();

/**
 * Returns the witness of a backend that `openBackend` opened with the option `witness`, or undefined if it has none.
 *
 * @throws `ArgumentError` for anything that is not a backend, `DisposedError` for a disposed backend.
 */
export function witnessOf(backend: Backend): Witness | undefined {
  return witnesses.get(requireBackend("witnessOf", backend));
}

/**
 * Lets a witness watch the operations of one of the library's own backends. `reference` is a reference with the same datapath,
 * which the witness alone uses.
 */
export function addWitness(backend: Backend, reference: Backend, options: WitnessOptions): OperationWitness {
  const witness = new OperationWitness(reference, options);
  interceptRun(backend, (run) => (op, args) => witness.watch(backend, run, op, args));
  witnesses.set(backend, witness);
  return witness;
}
