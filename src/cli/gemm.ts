import { defineCommand } from "./command.js";
export const gemm = defineCommand({
  name: "gemm",
  summary: "",
  inputs: ["IN…"],
  options: {},
  async run() {
    return 2;
  },
});
