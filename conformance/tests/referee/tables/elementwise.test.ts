// The models of elementwise operators give every bit that PyTorch computed on an H200, also those of f64 tensors.
import { testOperators } from "../../harness/referee/torch-operators.js";

testOperators("elementwise", []);
testOperators("doubles", []);
