/** The angles of a model's rotary embeddings, for as many positions as were needed so far. */
import type { Backend } from "../../backends/backend.js";
import { persistent } from "../../modules/parameter.js";
import { type RotaryAngles, RotaryPositionEmbedding } from "../../modules/rotary-position-embedding.js";
import type { RotaryConfig } from "../config/config.js";

/** The least number of positions of a table. */
const MIN_POSITIONS = 256;

interface Table {
  readonly embedding: RotaryPositionEmbedding;
  positions: number;
  angles: RotaryAngles | undefined;
}

/** Computes tables of angles when a call needs more positions. Layers with equal rotary embeddings share a table. */
export class RotaryTables {
  readonly #tables = new Map<string, Table>();

  constructor(private readonly backend: Backend) {}

  /** Returns angles of at least `positions` positions. */
  angles(rotary: RotaryConfig, positions: number): RotaryAngles {
    const table = this.#tableOf(rotary);
    if (table.angles && table.positions >= positions) return table.angles;
    release(table);
    table.positions = Math.max(MIN_POSITIONS, 2 ** Math.ceil(Math.log2(positions)));
    const { cos, sin, interleaved } = table.embedding.forward(table.positions);
    table.angles = { cos: persistent(cos), sin: persistent(sin), interleaved };
    return table.angles;
  }

  #tableOf(rotary: RotaryConfig): Table {
    const key = JSON.stringify(rotary);
    const existing = this.#tables.get(key);
    if (existing) return existing;
    const { dim, base, scaling, interleaved } = rotary;
    const options = { rotaryBase: base, scaling, interleaved };
    const embedding = new RotaryPositionEmbedding(this.backend, dim, options);
    const table: Table = { embedding, positions: 0, angles: undefined };
    this.#tables.set(key, table);
    return table;
  }

  /** Frees all tables. */
  dispose(): void {
    for (const table of this.#tables.values()) release(table);
  }
}

function release(table: Table): void {
  table.angles?.cos.dispose();
  table.angles?.sin.dispose();
  table.angles = undefined;
}
