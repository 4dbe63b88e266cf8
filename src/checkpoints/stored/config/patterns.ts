/**
 * Matches patterns of module names in configurations, including regular expressions. Expressions run as a nondeterministic
 * automaton (Thompson 1968) without backtracking, so that the time is at most the product of the two lengths.
 */

import { matchesGlob } from "../../../text/glob.js";

/** One state of the automaton: consumes a character, branches, asserts a position, or accepts. */
type Step =
  | { readonly accepts: (character: string) => boolean; readonly next: number }
  | { readonly to: readonly number[] }
  | { readonly at: "start" | "end"; readonly next: number }
  | { readonly accept: true };

/** A part of an expression: appends its states, which continue at `next`, and returns its first state. */
type Part = (steps: Step[], next: number) => number;

const MAX_STEPS = 10_000;
const MAX_DEPTH = 100;
const CLASSES: Readonly<Record<string, (character: string) => boolean>> = {
  d: (c) => c >= "0" && c <= "9",
  w: (c) => /^[A-Za-z0-9_]$/.test(c),
  s: (c) => c.trim() === "",
};

class Unsupported extends Error {}

class Parser {
  #at = 0;
  /** The number of enclosing parentheses. */
  #depth = 0;

  constructor(private readonly text: string) {}

  parse(): Part {
    const part = this.#alternatives();
    if (this.#at < this.text.length) throw new Unsupported();
    return part;
  }

  #peek(): string {
    return this.text.charAt(this.#at);
  }

  #take(): string {
    if (this.#at >= this.text.length) throw new Unsupported();
    return this.text.charAt(this.#at++);
  }

  #alternatives(depth = 0): Part {
    if (depth > MAX_DEPTH) throw new Unsupported();
    this.#depth = depth;
    const alternatives = [this.#sequence()];
    while (this.#peek() === "|") {
      this.#take();
      alternatives.push(this.#sequence());
    }
    return (steps, next) => push(steps, { to: alternatives.map((part) => part(steps, next)) });
  }

  #sequence(): Part {
    const elements: Part[] = [];
    while (this.#at < this.text.length && !"|)".includes(this.#peek())) elements.push(this.#repeated());
    return (steps, next) => elements.reduceRight((to, part) => part(steps, to), next);
  }

  #repeated(): Part {
    const part = this.#atom();
    if (!"*+?{".includes(this.#peek()) || this.#peek() === "") return part;
    const sign = this.#take();
    if (sign === "{") throw new Unsupported();
    // a lazy quantifier changes the length of a match, but not its existence
    if (this.#peek() === "?") this.#take();
    if (this.#peek() !== "" && "*+?{".includes(this.#peek())) throw new Unsupported();
    return sign === "?" ? optional(part) : loop(part, sign === "+");
  }

  #atom(): Part {
    const character = this.#take();
    if (character === "(") {
      if (this.#peek() === "?") {
        this.#take();
        if (this.#take() !== ":") throw new Unsupported();
      }
      const depth = this.#depth;
      const inner = this.#alternatives(depth + 1);
      this.#depth = depth;
      if (this.#take() !== ")") throw new Unsupported();
      return inner;
    }
    if (character === "[") return characterStep(this.#set());
    if (character === ".") return characterStep((c) => c !== "\n");
    if (character === "^") return (steps, next) => push(steps, { at: "start", next });
    if (character === "$") return (steps, next) => push(steps, { at: "end", next });
    if (character === "\\") return characterStep(this.#escaped());
    if ("*+?{".includes(character)) throw new Unsupported();
    return characterStep((c) => c === character);
  }

  #escaped(): (character: string) => boolean {
    const letter = this.#take();
    const characterClass = CLASSES[letter.toLowerCase()];
    if (characterClass) return letter === letter.toLowerCase() ? characterClass : (c) => !characterClass(c);
    if (/[A-Za-z0-9]/.test(letter)) throw new Unsupported();
    return (c) => c === letter;
  }

  #set(): (character: string) => boolean {
    const negated = this.#peek() === "^";
    if (negated) this.#take();
    const members: ((character: string) => boolean)[] = [];
    do {
      const first = this.#take();
      const isRange = (): boolean => this.#peek() === "-" && this.text.charAt(this.#at + 1) !== "]";
      if (first === "\\") {
        members.push(this.#escaped());
        if (isRange()) throw new Unsupported();
      } else if (isRange()) {
        this.#take();
        const last = this.#take();
        if (last === "\\") throw new Unsupported();
        members.push((c) => first <= c && c <= last);
      } else members.push((c) => c === first);
    } while (this.#peek() !== "]");
    this.#take();
    return (c) => members.some((member) => member(c)) !== negated;
  }
}

function push(steps: Step[], step: Step): number {
  if (steps.length >= MAX_STEPS) throw new Unsupported();
  return steps.push(step) - 1;
}

const characterStep =
  (test: (character: string) => boolean): Part =>
  (steps, next) =>
    push(steps, { accepts: test, next });

const optional =
  (part: Part): Part =>
  (steps, next) =>
    push(steps, { to: [part(steps, next), next] });

const loop =
  (part: Part, isRequired: boolean): Part =>
  (steps, next) => {
    const to: number[] = [];
    const loopState = push(steps, { to });
    const begin = part(steps, loopState);
    to.push(begin, next);
    return isRequired ? begin : loopState;
  };

/** All states that are reachable without consuming a character. */
function closure(steps: readonly Step[], from: Iterable<number>, start: boolean, end: boolean): Set<number> {
  const states = new Set<number>();
  const open = [...from];
  for (let state = open.pop(); state !== undefined; state = open.pop()) {
    if (states.has(state)) continue;
    states.add(state);
    const step = steps[state] as Step;
    if ("to" in step) open.push(...step.to);
    else if ("at" in step && (step.at === "start" ? start : end)) open.push(step.next);
  }
  return states;
}

interface Program {
  readonly steps: readonly Step[];
  readonly begin: number;
}

const PROGRAMS = new Map<string, Program | undefined>();
const MAX_PROGRAMS = 1000;

/** Compiles an expression; undefined if its syntax is not supported. */
function programOf(expression: string): Program | undefined {
  if (PROGRAMS.has(expression)) return PROGRAMS.get(expression);
  if (PROGRAMS.size >= MAX_PROGRAMS) PROGRAMS.clear();
  const steps: Step[] = [{ accept: true }];
  let program: Program | undefined;
  try {
    program = { begin: new Parser(expression).parse()(steps, 0), steps };
  } catch (error) {
    if (!(error instanceof Unsupported)) throw error;
  }
  PROGRAMS.set(expression, program);
  return program;
}

/**
 * Whether an expression matches at the beginning of a string, as Python's `re.match`. Undefined for lookaround, references and
 * counted repetition, which are not supported.
 */
export function matchesStart(expression: string, text: string): boolean | undefined {
  const program = programOf(expression);
  if (!program) return undefined;
  const { steps, begin } = program;
  let states = closure(steps, [begin], true, text === "");
  for (let position = 0; position < text.length && !states.has(0); position++) {
    const character = text.charAt(position);
    const next: number[] = [];
    for (const state of states) {
      const step = steps[state] as Step;
      if ("accepts" in step && step.accepts(character)) next.push(step.next);
    }
    states = closure(steps, next, false, position + 1 === text.length);
  }
  return states.has(0);
}

const REGULAR = "re:";

/**
 * Whether a configuration's pattern covers a module. A pattern is the name of the module, its last part, the name of an enclosing
 * module, a pattern with `*`, or a regular expression after "re:". Undefined for an unsupported expression.
 */
function covers(pattern: string, module: string): boolean | undefined {
  if (pattern.startsWith(REGULAR)) return matchesStart(pattern.slice(REGULAR.length), module);
  if (matchesGlob(pattern, module) || module.startsWith(`${pattern}.`) || matchesGlob(`${pattern}.*`, module))
    return true;
  return module.endsWith(`.${pattern}`) || `.${module}.`.includes(`.${pattern}.`);
}

/** Whether a pattern covers the module. Undefined if no pattern does and one pattern is not supported. */
export function isIgnored(patterns: readonly string[], module: string): boolean | undefined {
  const matches = patterns.map((pattern) => covers(pattern, module));
  return matches.includes(true) ? true : matches.includes(undefined) ? undefined : false;
}
