/** The recorded results of the Rust library of tokenizers (scripts/witness/tokenizers_vectors.py). */
import { readFileSync } from "node:fs";
import type { JsonObject } from "../../../../src/io/header/header.js";

export interface Encoding {
  readonly ids: readonly number[];
  /** The text of the ids, if it differs from the text that was encoded. */
  readonly decoded?: string;
}

interface Recorded {
  readonly texts: readonly string[];
  /** For each pre-tokenizer and text, the lengths of its pieces in characters. */
  readonly pieces: Readonly<Record<string, readonly (readonly number[])[]>>;
  readonly smollm2: { readonly sha256: string; readonly encodings: readonly Encoding[] };
  readonly small: readonly {
    readonly name: string;
    readonly tokenizer: JsonObject;
    readonly encodings: readonly Encoding[];
  }[];
}

export const RECORDED = JSON.parse(
  readFileSync(new URL("../../../vectors/tokenizers.json", import.meta.url), "utf8"),
) as Recorded;
