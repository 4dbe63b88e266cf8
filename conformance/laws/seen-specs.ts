/** Collects the specs that a run uses, for notes about the reference under these specs. */
import { zeroBlockNote } from "../../src/explain/zero-blocks.js";
import type { QuantizeSpec } from "../../src/tensor/quantized.js";
import type { Subject } from "../operations/operations.js";

/** A run with more specs than this draws them freely, and gets no notes. */
const MAX_SPECS = 4;

/** A subject that collects the specs of its inputs. */
export class SeenSpecs {
  readonly #specs = new Map<string, QuantizeSpec>();
  /** The wrapped subject, with unchanged answers. */
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

  /** Notes for the report of a law; the field is absent if there are none. */
  get notes(): { readonly notes?: readonly string[] } {
    if (this.#specs.size > MAX_SPECS) return {};
    const notes = [...this.#specs.values()].flatMap((spec) => zeroBlockNote(spec) ?? []);
    return notes.length > 0 ? { notes: [...new Set(notes)] } : {};
  }
}
