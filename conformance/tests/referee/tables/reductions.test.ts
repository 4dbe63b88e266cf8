// The models of reductions give every bit that PyTorch computed on an H200.
import { testOperators } from "../../harness/referee/torch-operators.js";

testOperators("reductions", []);
