/** Renders chat templates, which come with a model's files, in bounded time and memory. */
import { Environment, Interpreter, Template } from "@huggingface/jinja";

/** The largest number of steps of a template. A message takes about a hundred. */
const MAX_STEPS = 2 ** 22;
/** The largest number of elements that `range` returns. */
const MAX_RANGE = 2 ** 16;
/** The number of steps that a loop's iteration counts in addition to the steps of its body, in proportion to its time. */
const STEPS_OF_ITERATION = 16;
/** The number of characters of a new string that count as a step. */
const CHARACTERS_OF_STEP = 64;
/** The types of expressions that return an existing value instead of a new one. */
const REFERENCES: readonly unknown[] = ["Identifier", "MemberExpression"];

/** The fields of a parsed template's node that this module reads. */
interface TemplateNode {
  readonly type: string;
  /** The expression that a loop iterates over; it may be a selection. */
  readonly iterable?: TemplateNode;
  /** The expression from which a selection selects. */
  readonly lhs?: TemplateNode;
}

interface TemplateValue {
  readonly value: unknown;
}

/** The parts of the library's interpreter that are used. Its own declarations do not resolve under `nodenext`. */
interface LibraryInterpreter {
  run(program: unknown): TemplateValue;
  evaluate(node: TemplateNode | undefined, environment: unknown): TemplateValue;
}

const LibraryInterpreter: new (environment: unknown) => LibraryInterpreter = Interpreter;

/** Counts the steps of a template: nodes, iterations of loops, elements of new lists, and characters of new strings. */
class BoundedInterpreter extends LibraryInterpreter {
  #steps = 0;
  readonly #iterables = new WeakSet<TemplateNode>();

  override evaluate(node: TemplateNode | undefined, environment: unknown): TemplateValue {
    this.#count(1);
    // a loop with an empty body evaluates no node
    const iterable = node?.type === "For" ? node.iterable : undefined;
    if (iterable)
      this.#iterables.add(iterable.lhs && iterable.type === "SelectExpression" ? iterable.lhs : iterable);
    const result = super.evaluate(node, environment);
    if (node && this.#iterables.has(node)) this.#count(STEPS_OF_ITERATION * sizeOf(result.value));
    else if (node && !REFERENCES.includes(node.type)) this.#count(sizeOf(result.value));
    return result;
  }

  #count(steps: number): void {
    this.#steps += steps;
    if (this.#steps > MAX_STEPS) throw new Error(`it takes more than ${MAX_STEPS} steps`);
  }
}

function sizeOf(value: unknown): number {
  if (typeof value === "string") return value.length / CHARACTERS_OF_STEP;
  if (Array.isArray(value)) return value.length;
  return value instanceof Map ? value.size : 0;
}

/** Python's `range`. */
function range(first: number, second?: number, step = 1): readonly number[] {
  const [start, stop] = second === undefined ? [0, first] : [first, second];
  const count = Math.max(0, Math.ceil((stop - start) / step));
  if (count <= MAX_RANGE) return Array.from({ length: count }, (_, i) => start + i * step);
  throw new Error(`range has ${count} elements; ${MAX_RANGE} are the most, and its step is not 0`);
}

/** Renders a parsed template. Throws the errors of the template, and an `Error` if it takes too many steps. */
export function renderBounded(template: Template, values: Readonly<Record<string, unknown>>): string {
  const environment = new Environment();
  const globals = {
    ...{ true: true, false: false, none: null, True: true, False: false, None: null, range },
    raise_exception: (message: string): never => {
      throw new Error(message);
    },
    strftime_now: (format: string) => new Template("{{ strftime_now(format) }}").render({ format }),
  };
  for (const [name, value] of [...Object.entries(globals), ...Object.entries(values)])
    environment.set(name, value);
  return String(new BoundedInterpreter(environment).run(template.parsed).value);
}
