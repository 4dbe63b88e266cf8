// The models of operators that look elements up give every bit that PyTorch computed on an H200.
import { testOperators } from "../../harness/referee/torch-operators.js";

testOperators(
  "lookups",
  [],
  // with 7 indices, an index has thousands of rows
  { "aten::embedding_dense_backward": ({ outputs }) => outputs[0]?.[1][0] === 7 },
);
