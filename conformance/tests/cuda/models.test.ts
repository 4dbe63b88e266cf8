// Language models have the same logits on a GPU as on the reference, to the bit: whole prompts, and token by token from a cache.
import { expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import type { Backend } from "../../../src/backends/backend.js";
import { Float8BlockScaling } from "../../../src/index.js";
import { type CausalLM, loadCausalLM } from "../../../src/models/index.js";
import { tensor } from "../../../src/ops/create.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { asBytes } from "../../../src/tensor/data.js";
import { Scope } from "../../../src/tensor/scope.js";
import { describeOnGpu, useGpu } from "../harness/gpu/gpu.js";
import { readWitness, WITNESS_NAMES } from "../models/witnesses.js";

/** The models whose layers have sizes that a recipe does not support. */
const UNEVEN = ["gemma3", "qwen3-moe"];

describeOnGpu("language models on a GPU", () => {
  const { gpu, reference } = useGpu();
  const cases = WITNESS_NAMES.flatMap((name) => [
    [name, "bf16", undefined] as const,
    ...(UNEVEN.includes(name) ? [] : [[name, "Float8BlockScaling", new Float8BlockScaling()] as const]),
  ]);

  it.each(cases)("%s under %s: the logits of a prompt", async (name, _, recipe) => {
    const { path, tokens } = await readWitness(name);
    const logitsOn = async (backend: Backend): Promise<Uint8Array> => {
      using model = await loadCausalLM(backend, path, { dtype: "bf16" });
      using _scope = new Scope();
      const ids = tensor(backend, tokens, [1, tokens.length], "i32");
      const logits = noGrad(() =>
        autocast({ enabled: recipe !== undefined, recipe }, () => model.forward(ids)),
      );
      return asBytes(logits.tensor.dataSync()).slice();
    };
    expect(await logitsOn(gpu())).toEqual(await logitsOn(reference()));
  });

  it.each(WITNESS_NAMES)("%s: eight tokens from a cache", async (name) => {
    const { path, tokens } = await readWitness(name);
    const tokensOn = async (backend: Backend): Promise<readonly number[]> => {
      using model: CausalLM = await loadCausalLM(backend, path, { dtype: "bf16" });
      const list: number[] = [];
      for await (const [token] of model.generate([[...tokens]], { maxNewTokens: 8, eosTokenIds: [] }))
        list.push(token as number);
      return list;
    };
    const expected = await tokensOn(reference());
    expect(expected).toHaveLength(8);
    expect(await tokensOn(gpu())).toEqual(expected);
  });
});
