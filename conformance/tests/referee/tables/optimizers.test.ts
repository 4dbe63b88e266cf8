// The models of optimizers and of lists of tensors give every bit that PyTorch computed on an H200.
import { testOperators } from "../../harness/referee/torch-operators.js";

testOperators("optimizers", []);
