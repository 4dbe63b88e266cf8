/** The specs that a subject is asked to quantize by, and what is odd in the reference of these. */
import { zeroBlockNote } from "../../src/explain/zero-blocks.js";
import type { QuantizeSpec } from "../../src/tensor/quantized.js";
import type { Subject } from "../operations/operations.js";

/** A subject with more specs than this takes whatever is drawn, and gets no notes about each. */
const MAX_SPECS = 4;

/** A subject, and the specs of its inputs. */
export class SeenSpecs {
  readonly #specs = new Map<string, QuantizeSpec>();
  /** The subject, whose answers are the same. */
  readonly subject: Subject;

  constructor(subject: Subject) {
    const { quantize } = subject;
    this.subject = quantize
      ? {
          ...subject,
          quantize: (input) => {
            this.#specs.set(JSON.stringify(input.spec), input.spec);
            return quantize(input);
          },
        }
      : subject;
  }

  /** Notes for the report of a law; without any, no field. */
  get notes(): { readonly notes?: readonly string[] } {
    if (this.#specs.size > MAX_SPECS) return {};
    const notes = [...this.#specs.values()].flatMap((spec) => zeroBlockNote(spec) ?? []);
    return notes.length > 0 ? { notes: [...new Set(notes)] } : {};
  }
}
