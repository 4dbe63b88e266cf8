/** `lockstep gemm`: multiplies two matrices. */
import { defineCommand } from "../command.js";
import type { OpenFile } from "../files.js";
import { flag, optional, someText } from "../options.js";
import { OUTPUT } from "../shared-options.js";
import { Sources } from "./gemm-operands.js";
import { readPlan, requireUnplanned } from "./gemm-plan.js";
import { GEMM_OPTIONS, multiply } from "./gemm-product.js";

export const gemm = defineCommand({
  name: "gemm",
  summary: "multiplies x [M,K] by the transpose of w [N,K]: d[i][j] is the sum over k of x[i][k] * w[j][k]",
  details: [
    "Each operand is a plain tensor of dtype F8_E4M3, F8_E5M2, BF16, F16 or F32, or the rowwise copy of a tensor that quantize wrote. A plain 8-bit operand x may have F32 scales in x.scale_inv: one, or one for each 1x128 or 128x128 block. The operands may be named a and b instead of x and w. Writes d [M,N].",
  ],
  example: "quantized.safetensors -o product.safetensors --datapath hopper",
  inputs: ["IN…"],
  options: {
    output: OUTPUT,
    ...GEMM_OPTIONS,
    plan: optional({
      placeholder: "FILE",
      help: "compute by the plan in this file, which --print-plan printed",
      parse: someText,
      file: "read",
    }),
    "print-plan": flag("print the plan of the product as JSON on stdout, for --plan"),
  },
  async run({ session, values, inputs, usedOptions }) {
    const { output, plan: planPath, ...settings } = values;
    requireUnplanned(planPath, usedOptions);
    const plan = planPath === undefined ? undefined : await readPlan(session.files, planPath);
    const files: OpenFile[] = [];
    try {
      for (const input of inputs) files.push(await session.files.open(input));
      const backend = await session.backend();
      const product = await multiply(backend, {
        sources: new Sources(files),
        settings,
        plan,
        onStart: (multiplyAdds) => {
          const progress = session.progress(multiplyAdds, "MAC");
          return (share) => (share < 1 ? progress.set(share * multiplyAdds) : progress.finish());
        },
      });
      await session.files.write(output, { tensors: product.tensors }, async (put) => {
        for (const { name, bytes } of product.tensors) await put(name, bytes);
      });
      const shapes = product.tensors
        .map(({ name, dtype, shape }) => `${name} ${dtype} [${shape}]`)
        .join(", ");
      const { datapath, splitAccumulator, splitK } = product.plan;
      const { unverified } = product;
      if (settings["print-plan"]) session.result(product.plan, [JSON.stringify(product.plan)]);
      else {
        const method = `${datapath}${splitAccumulator ? ", split accumulator" : ""}${splitK > 1 ? `, split-K ${splitK}` : ""}`;
        const report = { output, tensors: product.tensors.map(({ name }) => name), plan: product.plan };
        session.summary(unverified === undefined ? report : { ...report, unverified }, [
          `${output}: ${shapes} by ${backend.name}, datapath ${method}`,
          ...(unverified === undefined ? [] : [`unverified: ${unverified}`]),
        ]);
      }
    } finally {
      for (const file of files) await file.close();
    }
    return 0;
  },
});
