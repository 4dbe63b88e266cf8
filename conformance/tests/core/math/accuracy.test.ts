/**
 * Functions of one f32 equal docs/numerics.md §7.2 and §7.6 on some inputs. `node scripts/accuracy.mjs` compares all
 * 2^32.
 */
import { beforeAll, expect, it } from "vitest";
import { FUNCTION_FORMS, measure } from "../../harness/accuracy/accuracy.js";
import { openStems, type Stems } from "../../harness/accuracy/stems.js";
import { sampleCases } from "../../harness/draws.js";

/**
 * Chunks of 2^16 consecutive inputs. A binade has 128 of them. The list has one chunk of every sixteenth binade of
 * either sign, and the last chunk, which is NaN.
 */
const CHUNKS = [...Array.from({ length: 32 }, (_, i) => i * 16 * 128 + ((i * 37) % 128)), 65535];
/** Chunks of the binades from 2^-4 to 2^4, where functions change most. */
const TURNS = Array.from(
  { length: 16 },
  (_, i) => ((i < 8 ? 0 : 256) + 123 + (i % 8)) * 128 + ((i * 53) % 128),
);

let stems: Stems;
beforeAll(async () => {
  stems = await openStems();
});

const chunks = [...sampleCases(CHUNKS), ...sampleCases(TURNS)];

it.each(Object.keys(FUNCTION_FORMS))(
  "%s has the bits that docs/numerics.md defines, within 0.51 ulp of the true value",
  (name) => {
    const form = FUNCTION_FORMS[name];
    if (!form) throw new Error(`${name} is not measured`);
    const { inputs, different, ulps, apart: ulpsApart } = measure(stems, form, chunks);
    expect(inputs).toBe(chunks.length * 2 ** 16);
    expect(different).toBe(0);
    expect(ulps).toBeLessThan(0.51);
    expect(ulpsApart).toBeLessThan(2 ** -30);
  },
);
